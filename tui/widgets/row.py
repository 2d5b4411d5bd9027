"""Rows of spans: which of their cells changed, and lines with links: Enter on one opens what it names."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, get_args

from rich.cells import cell_len

from tui.style import Span

# ---- rows of spans, and which of their cells changed -----------------------------------------------------------------

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


# ---- lines with links ------------------------------------------------------------------------------------------------

Kind = Literal["run", "job", "node", "log", "wandb", "alert", "disk", "attempt", "changes"]

Line = tuple[Span, ...]

_SIGN = ">"
"""Prefix of the keys of linked rows. The other rows are numbered."""


class Link(NamedTuple):
    """The target of a link: a run or node by name, a job by key, a run's log or W&B charts, an alert or attempt by
    id, a disk by the key of its row."""

    kind: Kind
    name: str


class Linked(NamedTuple):
    """A line with a link."""

    link: Link
    spans: Line


def rows(lines: Iterable[Line | Linked]) -> list[Row]:
    """Lines as rows. The cursor stays on its link when lines above it change."""
    found: list[Row] = []
    taken: set[Link] = set()
    for number, line in enumerate(lines):
        if isinstance(line, Linked) and line.link not in taken:
            taken.add(line.link)
            found.append(Row(f"{_SIGN}{line.link.kind}:{line.link.name}", line.spans))
        else:
            found.append(Row(str(number), line.spans if isinstance(line, Linked) else line))
    return found


def link_of(key: str | None) -> Link | None:
    """The link of the row with this key."""
    kind, colon, name = (key or "").removeprefix(_SIGN).partition(":")
    if key is None or not key.startswith(_SIGN) or not colon:
        return None
    return next((Link(known, name) for known in get_args(Kind) if kind == known), None)


def first_link(shown: Iterable[Row]) -> str | None:
    """The key of the first row with a link."""
    return next((row.key for row in shown if link_of(row.key) is not None), None)


SENTENCE_LINES = 6


def sentence(text: str, width: int, style: str = "") -> Iterator[Line]:
    """A sentence, wrapped, without a label."""
    for line in textwrap.wrap(text, max(8, width), break_on_hyphens=False)[:SENTENCE_LINES]:
        yield (Span(line, style),)
