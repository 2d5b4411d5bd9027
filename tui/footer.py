"""The last line: the keys that work here, at most nine. A click presses the key."""

from __future__ import annotations

from textual import events

from trainmon.text import cells
from tui.keys import Key, footer
from tui.lines import GUTTER, Heading, Span

GAP = 2


class Foot(Heading):
    """Draws the keys of a place, or a sentence in their stead."""

    def __init__(self) -> None:
        super().__init__(id="foot")
        self.place = "runs"
        self.sentence = ""

    def at(self, place: str, sentence: str = "") -> None:
        """Say what works in this place."""
        self.place, self.sentence = place, sentence
        self.again()

    def keys(self) -> tuple[Key, ...]:
        """The keys that are written there now."""
        return fitting(footer(self.place), self.size.width - GUTTER, self.sentence)

    def placed(self) -> list[tuple[Key, int]]:
        """Each of them with its first column."""
        return starts(self.keys(), self.sentence)

    def again(self) -> None:
        self.set_spans(foot_spans(self.keys(), self.sentence))

    def on_resize(self) -> None:
        self.again()

    def on_click(self, event: events.Click) -> None:
        for key, start in self.placed():
            if start <= event.x < start + width_of(key):
                self.app.simulate_key(key.keys.split(",")[0])


def width_of(key: Key) -> int:
    return cells(key.cap) + 1 + cells(key.short)


def fitting(keys: tuple[Key, ...], width: int, sentence: str = "") -> tuple[Key, ...]:
    """As many as fit; those in the middle give way before help, commands and quit at the end."""
    shown = list(keys)
    room = width - (cells(sentence) + GAP if sentence else 0)
    while shown and sum(width_of(key) + GAP for key in shown) - GAP > room:
        shown.pop(max(0, len(shown) - 4) if len(shown) > 3 else 0)
    return tuple(shown)


def foot_spans(keys: tuple[Key, ...], sentence: str = "") -> tuple[Span, ...]:
    """Each key in the accent colour, its word after it."""
    spans = [Span(sentence + " " * GAP, "warn")] if sentence else []
    for key in keys:
        spans += [Span(key.cap, "accent bold"), Span(f" {key.short}{' ' * GAP}", "dim")]
    return tuple(spans)


def starts(keys: tuple[Key, ...], sentence: str = "") -> list[tuple[Key, int]]:
    """The first column of each key in the footer."""
    column = GUTTER + (cells(sentence) + GAP if sentence else 0)
    placed = []
    for key in keys:
        placed.append((key, column))
        column += width_of(key) + GAP
    return placed
