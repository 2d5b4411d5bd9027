"""Which alerts are meant where the cursor is on a run, a job, a node or a disk. Pure."""

from __future__ import annotations

from collections.abc import Collection

from trainmon.model import Alert, State
from tui.views.alerts.words import most_urgent, standing, urgent

TAKEN = ("open", "ending", "acknowledged", "muted")
"""What of a row a person may have something to say about: not what another hides, nor what is not sure yet."""


def about(
    state: State, *, runs: Collection[str] = (), nodes: Collection[str] = (), disks: Collection[str] = ()
) -> tuple[str, ...]:
    """The ids of what fires of these runs, nodes and disks (`login1:/tmp`), the worst first: what their `!` stands for,
    and what was acknowledged or muted of it."""
    found = [
        one
        for one in state.alerts.values()
        if one.severity != "info" and standing(one, state.at) in TAKEN and _is_of(one, runs, nodes, disks)
    ]
    first = {one.id: place for place, one in enumerate(urgent(found, state.at))}
    return tuple(one.id for one in sorted(found, key=lambda one: (first.get(one.id, len(first)), one.since, one.id)))


def about_subjects(state: State, subjects: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The same, of what keys that act are about: runs, jobs by the run that they are of, nodes."""
    jobs = {name for kind, name in subjects if kind == "job"}
    runs = {name for kind, name in subjects if kind == "run"} | {n for n, run in state.runs.items() if run.job in jobs}
    return about(state, runs=runs, nodes={name for kind, name in subjects if kind == "node"})


def _is_of(alert: Alert, runs: Collection[str], nodes: Collection[str], disks: Collection[str]) -> bool:
    disk = alert.subject.removeprefix("disk:").partition(" ")[0] if alert.subject.startswith("disk:") else None
    return alert.run in runs or alert.node in nodes or disk in disks


def worst(state: State) -> tuple[Alert, ...]:
    """What the strip shows first, or nothing."""
    return most_urgent(state)[:1]
