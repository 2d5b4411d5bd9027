"""Rows of spans, and which of their cells changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from rich.cells import cell_len

from tui.style import Span

GUTTER = 1
"""Cells left of every row for the symbol of the cursor or of a mark: the cursor is visible without colour."""

SENTENCE = "\0"
"""Prefix of the keys of text rows, which show no cursor. No name can begin so."""

HEADING = "\1"
"""Prefix of the keys of heading rows, which never hold the cursor: no key press has a meaning there."""


class Row(NamedTuple):
    """One screen line. The key identifies its subject, whatever its position."""

    key: str
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def width_of(spans: Iterable[Span]) -> int:
    """Terminal cells that spans take: a wide character takes two."""
    return sum(cell_len(span.text) for span in spans)


def changed_columns(old: Sequence[Span], new: Sequence[Span]) -> tuple[int, int] | None:
    """The cells [from, to) that differ between two lines, or None when they look the same.

    One range per line, not one per span: the compositor writes a line from its left edge to the end of each range.
    """
    if old == new:
        return None
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    start = width_of(old[:same])
    old_end, new_end = width_of(old), width_of(new)
    if old_end != new_end:
        return start, max(old_end, new_end)
    pairs = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    return start, new_end - width_of(after for _, after in takewhile(lambda pair: pair[0] == pair[1], pairs))
