"""The mark of an alert beside a run, a node or a disk: a `!` after the row's own sign. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainmon.model import SEVERITIES, Alert, Severity, State
from tui.style import Span
from tui.views.alerts.words import SIGNS, most_urgent
from tui.widgets import Row


class Marks(NamedTuple):
    """The worst that fires, and that nobody has taken on, of each run, node and disk."""

    runs: Mapping[str, Severity]
    nodes: Mapping[str, Severity]
    disks: Mapping[str, Severity]
    """By Disk.key."""


NONE = Marks({}, {}, {})


def marks(state: State) -> Marks:
    urgent = most_urgent(state)
    if not urgent:
        return NONE
    if _Kept.urgent is not urgent:
        _Kept.urgent, _Kept.marks = urgent, _marks(urgent)
    return _Kept.marks


class _Kept:
    """The last that were asked for: three panes ask for the same in one paint."""

    urgent: tuple[Alert, ...] = ()
    marks: Marks = NONE


def _marks(urgent: Sequence[Alert]) -> Marks:
    runs: dict[str, Severity] = {}
    nodes: dict[str, Severity] = {}
    disks: dict[str, Severity] = {}
    for one in reversed(urgent):  # the worst comes last, and stays
        disk = one.subject.removeprefix("disk:").partition(" ")[0] if one.subject.startswith("disk:") else None
        for kind, name in ((runs, one.run), (nodes, one.node), (disks, disk)):
            if name is not None:
                kind[name] = one.severity
    return Marks(runs, nodes, disks)


def worst(severities: Iterable[Severity | None]) -> Severity | None:
    """The worst of some, for a row about several things."""
    known = [one for one in severities if one is not None]
    return min(known, key=SEVERITIES.index, default=None)


def marked(row: Row, severity: Severity | None) -> Row:
    """The row with its mark: its first span is a sign and a blank."""
    if severity is None or not row.spans or len(row.spans[0].text) != 2:
        return row
    first = row.spans[0]
    return Row(row.key, (Span(first.text[0], first.style), Span("!", SIGNS[severity][2]), *row.spans[1:]))
