"""How serious the open alerts of a row are: the mark of the row, and its place in the order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from trainmon.model import SEVERITIES, Alert, State
from tui.style import Span
from tui.views.alerts.status import AlertStatus, disk_of, is_muted, status_of
from tui.widgets import Row


class Concern(IntEnum):
    """The worst open alert of a row, the worst first. A pending alert has begun and is not sent yet."""

    CRITICAL = 0
    WARNING = 1
    PENDING = 2
    NONE = 3


STYLES: Mapping[Concern, str] = {Concern.CRITICAL: "crit", Concern.WARNING: "warn", Concern.PENDING: "warn"}


class Concerns(NamedTuple):
    """The concern of each run, node and disk that has one."""

    runs: dict[str, Concern]
    nodes: dict[str, Concern]
    disks: dict[str, Concern]
    """By Disk.key."""
    rules: dict[str, Concern]
    """By `rule_key`."""


def rule_key(run: str, rule: str) -> str:
    return f"{rule} {run}"


UNSETTLED: Collection[AlertStatus] = ("open", "pending")
"""Alerts that nobody has taken care of: they mark their rows."""

PRESENT: Collection[AlertStatus] = (*UNSETTLED, "recovering", "acknowledged", "inhibited")
"""Alerts whose condition holds: they move their rows up."""


def _of_statuses(statuses: Collection[AlertStatus]) -> Callable[[State], Concerns]:
    """The concerns by unmuted alerts of these statuses. Computed once per State: several panes need it."""
    last: list[tuple[Mapping[str, Alert], float, Concerns]] = [({}, -1.0, Concerns({}, {}, {}, {}))]

    def concerns(state: State) -> Concerns:
        if last[0][0] is state.alerts and last[0][1] == state.at:
            return last[0][2]
        found = Concerns({}, {}, {}, {})
        for one in state.alerts.values():
            if one.severity == "info" or is_muted(one, state.at):
                continue
            if (status := status_of(one, state.at)) in statuses:
                concern = Concern.PENDING if status == "pending" else Concern(SEVERITIES.index(one.severity))
                keys = (one.run, one.node, disk_of(one), one.run and rule_key(one.run, one.rule))
                for known, key in zip(found, keys, strict=True):
                    if key is not None:
                        known[key] = min(concern, known.get(key, concern))
        last[0] = (state.alerts, state.at, found)
        return found

    return concerns


alert_marks = _of_statuses(UNSETTLED)
alert_ranks = _of_statuses(PRESENT)


def with_mark(row: Row, concern: Concern | None) -> Row:
    """The row with its mark in place of the blank after its sign. The sign of a marked row is never green."""
    if concern is None or concern not in STYLES or not row.spans or len(row.spans[0].text) != 2:
        return row
    first, style = row.spans[0], STYLES[concern]
    sign = Span(first.text[0], style if first.style == "ok" else first.style)
    return Row(row.key, (sign, Span("!", style), *row.spans[1:]))
