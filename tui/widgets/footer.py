"""The last line: the keys that look, at most nine, and after a bar those that act. A click presses the key."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from trainmon.lib import cell_width
from tui.keys import ACTS, NARROW, Key, footer, footer_acts
from tui.style import Span
from tui.widgets.keyed_lines import GUTTER, Heading

GAP = "  "
BAR = " | "
"""Between the keys that look and those that act, so that these are never taken for views."""

SHARE = 0.36
"""Of the line's width, what the keys that act may take from the others."""


class Footer(Heading):
    """Draws the keys of a place, or a sentence in their stead."""

    def __init__(self) -> None:
        super().__init__(id="foot")
        self.place = "runs"
        self.sentence = ""
        self.read_only = False

    def at(self, place: str, sentence: str = "") -> None:
        """Say what works in this place."""
        self.place, self.sentence = place, sentence
        self.again()

    def grey(self, *, read_only: bool) -> None:
        """Whether the keys that act only say why they do not."""
        if read_only != self.read_only:
            self.read_only = read_only
            self.again()

    def keys(self) -> tuple[Key, ...]:
        """The keys that are written there now."""
        return chosen(self.place, self.size.width - GUTTER, self.sentence)

    def placed(self) -> list[tuple[Key, int]]:
        """Each of them with its first column."""
        return starts(self.keys(), self.sentence)

    def again(self) -> None:
        self.set_spans(foot_spans(self.keys(), self.sentence, read_only=self.read_only))

    def on_resize(self) -> None:
        self.again()

    def on_click(self, event: events.Click) -> None:
        for key, start in self.placed():
            if start <= event.x < start + width_of(key):
                self.app.simulate_key(key.keys.split(",")[0])


def width_of(key: Key) -> int:
    return cell_width(key.cap) + 1 + cell_width(key.short)


def width_of_all(keys: Sequence[Key]) -> int:
    return sum(map(width_of, keys)) + len(GAP) * max(0, len(keys) - 1)


def chosen(place: str, width: int, sentence: str = "") -> tuple[Key, ...]:
    """What fits of a place's keys: of those that act as many as their share holds, of the others the rest."""
    room = width - (cell_width(sentence) + len(GAP) if sentence else 0)
    acts = list(footer_acts(place))
    while acts and width_of_all(acts) > room * SHARE:
        acts.pop()
    left = room - (width_of_all(acts) + len(BAR) if acts else 0)
    return (*fitting(footer(place), left), *acts)


def fitting(keys: tuple[Key, ...], width: int) -> tuple[Key, ...]:
    """As many as fit, in their order: first those that a narrow line keeps, then the others as they come."""
    shown: list[Key] = []
    for key in sorted(keys, key=lambda key: NARROW.index(key.id) if key.id in NARROW else len(NARROW)):
        if width_of_all([*shown, key]) <= width:
            shown.append(key)
    return tuple(key for key in keys if key in shown)


def foot_spans(keys: tuple[Key, ...], sentence: str = "", *, read_only: bool = False) -> tuple[Span, ...]:
    """Each key in the accent colour, its word after it; those that act after a bar, and all dim where none may."""
    spans = [Span(sentence, "warn")] if sentence else []
    for key, lead in led(keys, sentence):
        look = "dim" if read_only and key.scope in ACTS else "accent bold"
        spans += [Span(lead, "dim"), Span(key.cap, look), Span(f" {key.short}", "dim")]
    return tuple(spans)


def led(keys: Sequence[Key], sentence: str = "") -> list[tuple[Key, str]]:
    """Each key with what stands before it: a gap, or the bar before the first that acts."""
    first = next((key for key in keys if key.scope in ACTS), None)
    begins = keys[0] if keys and not sentence else None
    return [(key, "" if key is begins else BAR if key is first else GAP) for key in keys]


def starts(keys: tuple[Key, ...], sentence: str = "") -> list[tuple[Key, int]]:
    """The first column of each key in the footer."""
    column = GUTTER + cell_width(sentence)
    placed = []
    for key, lead in led(keys, sentence):
        column += len(lead)
        placed.append((key, column))
        column += width_of(key)
    return placed
