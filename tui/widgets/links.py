"""Lines with links: Enter on one opens the run, job, node, disk, log, charts, alert or attempt that it names."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from tui.style import Span
from tui.widgets.row import Row

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
