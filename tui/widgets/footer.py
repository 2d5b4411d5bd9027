"""The footer: at most nine view keys, then a bar and the action keys. A click presses the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual import events
from textual.reactive import reactive

from trainmon.lib import cell_width
from tui.keys import ACTS, NARROW, Key, footer, footer_acts
from tui.style import Span
from tui.widgets.spans import GUTTER, Heading

GAP = "  "
BAR = " | "
"""Between view keys and action keys, so that nobody takes an action for a view."""

SHARE = 0.36
"""The share of the line's width that action keys may take."""


class Footer(Heading):
    """The keys of a context, with a sentence before them when there is one."""

    read_only = reactive(False, init=False)
    """Whether the action keys are dim."""

    def __init__(self) -> None:
        super().__init__(id="foot")
        self.context = "runs"
        self.sentence = ""

    def at(self, context: str, sentence: str = "") -> None:
        """Show the keys of this context."""
        self.context, self.sentence = context, sentence
        self.again()

    def keys(self) -> tuple[Key, ...]:
        """The keys that it shows now."""
        return chosen(self.context, self.size.width - GUTTER, self.sentence)

    def again(self) -> None:
        self.set_spans(foot_spans(self.keys(), self.sentence, read_only=self.read_only))

    def on_resize(self) -> None:
        self.again()

    def watch_read_only(self) -> None:
        self.again()

    def on_click(self, event: events.Click) -> None:
        for key, _, start in placed(self.keys(), self.sentence):
            if start <= event.x < start + key_width(key):
                self.app.simulate_key(key.keys.split(",")[0])


def key_width(key: Key) -> int:
    return cell_width(key.cap) + 1 + cell_width(key.short)


def keys_width(keys: Sequence[Key]) -> int:
    return sum(map(key_width, keys)) + len(GAP) * max(0, len(keys) - 1)


def chosen(context: str, width: int, sentence: str = "") -> tuple[Key, ...]:
    """The keys of a context that fit: action keys up to their share of the width, view keys in the rest."""
    available = width - (cell_width(sentence) + len(GAP) if sentence else 0)
    acts = list(footer_acts(context))
    while acts and keys_width(acts) > available * SHARE:
        acts.pop()
    left = available - (keys_width(acts) + len(BAR) if acts else 0)
    return (*fitting(footer(context), left), *acts)


def fitting(keys: tuple[Key, ...], width: int) -> tuple[Key, ...]:
    """The keys that fit, in their order. A narrow line keeps the most important ones (`NARROW`)."""
    shown: list[Key] = []
    for key in sorted(keys, key=lambda key: NARROW.index(key.id) if key.id in NARROW else len(NARROW)):
        if keys_width([*shown, key]) <= width:
            shown.append(key)
    return tuple(key for key in keys if key in shown)


def foot_spans(keys: tuple[Key, ...], sentence: str = "", *, read_only: bool = False) -> tuple[Span, ...]:
    """Each key in the accent colour with its label. Action keys follow a bar, and are dim when read-only."""
    spans = [Span(sentence, "warn")] if sentence else []
    for key, lead, _ in placed(keys, sentence):
        style = "dim" if read_only and key.scope in ACTS else "accent bold"
        spans += [Span(lead, "dim"), Span(key.cap, style), Span(f" {key.short}", "dim")]
    return tuple(spans)


def placed(keys: Sequence[Key], sentence: str = "") -> Iterator[tuple[Key, str, int]]:
    """Each key with what separates it from what is before it (a gap, or a bar before the first action key), and its
    first column."""
    first, column = next((key for key in keys if key.scope in ACTS), None), GUTTER + cell_width(sentence)
    for number, key in enumerate(keys):
        lead = "" if number == 0 and not sentence else BAR if key is first else GAP
        yield key, lead, column + len(lead)
        column += len(lead) + key_width(key)
