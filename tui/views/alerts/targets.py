"""Which alerts belong to the run, job, node or disk of a row, and the `!` that marks such a row. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from trainmon.model import SEVERITIES, Alert, Severity, State
from tui.style import Span
from tui.views.alerts.status import SIGNS, most_urgent, standing, urgent
from tui.widgets import Row

TAKEN = ("open", "ending", "acknowledged", "muted")
"""Alerts that a person may acknowledge or mute from a row: neither inhibited nor pending ones."""


def disk_of(alert: Alert) -> str | None:
    """The key of the disk that an alert is about."""
    return alert.subject.removeprefix("disk:").partition(" ")[0] if alert.subject.startswith("disk:") else None


def about(
    state: State, *, runs: Collection[str] = (), nodes: Collection[str] = (), disks: Collection[str] = ()
) -> tuple[str, ...]:
    """The ids of the firing alerts of these runs, nodes and disks (`login1:/tmp`), the worst first. Acknowledged and
    muted ones are among them."""
    found = [
        one
        for one in state.alerts.values()
        if one.severity != "info"
        and standing(one, state.at) in TAKEN
        and (one.run in runs or one.node in nodes or disk_of(one) in disks)
    ]
    first = {one.id: place for place, one in enumerate(urgent(found, state.at))}
    return tuple(one.id for one in sorted(found, key=lambda one: (first.get(one.id, len(first)), one.since, one.id)))


def about_subjects(state: State, subjects: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The same of the subjects of rows: runs, jobs (by their run) and nodes."""
    jobs = {name for kind, name in subjects if kind == "job"}
    runs = {name for kind, name in subjects if kind == "run"} | {n for n, run in state.runs.items() if run.job in jobs}
    return about(state, runs=runs, nodes={name for kind, name in subjects if kind == "node"})


class Marks(NamedTuple):
    """The worst open alert of each run, node and disk."""

    runs: Mapping[str, Severity]
    nodes: Mapping[str, Severity]
    disks: Mapping[str, Severity]
    """By Disk.key."""


def marks(state: State) -> Marks:
    """The marks of every row."""
    runs: dict[str, Severity] = {}
    nodes: dict[str, Severity] = {}
    disks: dict[str, Severity] = {}
    for one in reversed(most_urgent(state)):  # the worst comes last, and stays
        for kind, name in ((runs, one.run), (nodes, one.node), (disks, disk_of(one))):
            if name is not None:
                kind[name] = one.severity
    return Marks(runs, nodes, disks)


def worst(severities: Iterable[Severity | None]) -> Severity | None:
    """The worst severity, for a row about several things."""
    return min((one for one in severities if one is not None), key=SEVERITIES.index, default=None)


def marked(row: Row, severity: Severity | None) -> Row:
    """The row with its mark in place of the blank after its sign."""
    if severity is None or not row.spans or len(row.spans[0].text) != 2:
        return row
    first = row.spans[0]
    return Row(row.key, (Span(first.text[0], first.style), Span("!", SIGNS[severity][2]), *row.spans[1:]))
