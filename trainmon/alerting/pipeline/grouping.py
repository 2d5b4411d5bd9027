"""Grouping: due alerts become a few notifications: one for eight GPUs of a node, a few for ten thousand alerts. Pure.

Nothing is dropped: a notification of more alerts than it carries says how many, and of which rules.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from trainmon.alerting.pipeline.routing import DueAlert, notified
from trainmon.lib import Instant, Seconds, counted
from trainmon.model import SEVERITIES, Alert, Delivery, Notice, NoticeKind, Severity

CARRIED = 200
"""Alerts that one notification carries, the worst first. Its lines count the others."""

COUNTED_ABOVE = 8
"""With more alerts of several rules, a notification lists the number of alerts of each rule."""

GROUPS = 4
"""Notifications of one kind per evaluation. More groups are merged by rule and cluster, or all into one."""

PAUSES: tuple[Seconds, ...] = (0.0, 5.0, 15.0, 60.0, 300.0)
"""The pauses between notifications of a growing group: none at first, then longer ones (Alertmanager: group_interval,
always 5 min)."""

CRITICAL_PAUSE: Seconds = 60.0
"""A critical alert waits at most this long for its group."""

QUIET: Seconds = 600.0
"""A group without a notification for this long starts again."""

BURST, BURST_WITHIN, BURST_PAUSE = 8, 60.0, 30.0
"""After this many notifications in a minute, new alerts are notified together every 30 s. The first alert of a run or a
node does not wait for that; it waits only if there were this many first alerts."""

FIRST_PAUSE: Seconds = 1.5
"""The pause between first alerts of two nodes of one group."""

REASONS = 3
"""The reasons that one notification names."""

GROUPS_REMEMBERED = 1_000
OWNERS_REMEMBERED = 10_000


Key = TypeVar("Key", bound=Hashable)

Owner = tuple[Severity, str]
"""(severity, run or node)"""


class GroupTimer(NamedTuple):
    """The last notification of one group, and the number of notifications in a row."""

    at: Instant
    times: int


class GroupTimers(msgspec.Struct, frozen=True):
    """What was notified lately, so that a spreading fault does not flood the channels."""

    groups: Mapping[tuple[NoticeKind, str], GroupTimer] = {}
    recent: tuple[Instant, ...] = ()
    """The times of the last notifications of new alerts."""
    owners: Mapping[Owner, Instant] = {}
    """The last notification of each severity, for each run and node."""
    firsts: tuple[Instant, ...] = ()
    """The times of the last notifications with a first alert of a run or a node."""


class Grouped(NamedTuple):
    """The notifications of one evaluation, and the alerts and timers after it."""

    notices: tuple[Notice, ...]
    alerts: tuple[Alert, ...]
    timers: GroupTimers
    next_at: Instant | None
    """When the next waiting group is notified."""


NEW_ALERTS: frozenset[NoticeKind] = frozenset({"fire", "event"})
"""The kinds that may come in thousands at once. Only these are delayed."""


def group_alerts(due_alerts: Sequence[DueAlert], timers: GroupTimers, now: Instant) -> Grouped:
    """The notifications of the groups that are ready. The others wait."""
    notices: list[Notice] = []
    alerts: dict[str, Alert] = {}
    later: list[Instant] = []
    for (kind, channels), mine in _by(due_alerts, lambda one: (one.kind, one.channels)).items():
        groups = _by(mine, lambda one: group_of(one.alert))
        times = {group: _ready_time(kind, group, members, timers) for group, members in groups.items()}
        # Waiting groups go along with a ready group of the same node.
        nodes = {_node(members) for group, members in groups.items() if times[group] <= now} - {None}
        ready = {group: members for group, members in groups.items() if times[group] <= now or _node(members) in nodes}
        later += [at for group, at in times.items() if group not in ready]
        for group, members in _merged(ready).items():
            after = [_waiting(notified(one, now), kind, channels, now) for one in members]
            alerts |= {alert.id: alert for alert in after}
            notices.append(_notice(kind, channels, group, members, after, now))
        timers = _advanced(timers, kind, ready, now)
    return Grouped(tuple(notices), tuple(alerts.values()), timers, min(later, default=None))


def _by(due_alerts: Iterable[DueAlert], key: Callable[[DueAlert], Key]) -> dict[Key, list[DueAlert]]:
    found: dict[Key, list[DueAlert]] = {}
    for one in due_alerts:
        found.setdefault(key(one), []).append(one)
    return found


def group_of(alert: Alert) -> str:
    """The group of an alert: the GPUs of a node, the nodes and disks of a cluster."""
    match alert.subject.partition(":")[0]:
        case "gpu" if alert.node:
            return f"{alert.rule} {alert.node}"
        case "node" | "disk" | "source":
            return f"{alert.rule} {alert.cluster}"
    return f"{alert.rule} {alert.subject}"


def _node(members: Iterable[DueAlert]) -> str | None:
    """The node that all alerts of a group are about, if it is one."""
    nodes = {one.alert.node for one in members}
    return nodes.pop() if len(nodes) == 1 else None


def _owner(alert: Alert) -> str | None:
    return alert.node or alert.run


def _is_first(alert: Alert, timers: GroupTimers, at: Instant) -> bool:
    """Whether nothing as severe was notified of its run or node lately."""
    owner, as_bad = _owner(alert), SEVERITIES[: SEVERITIES.index(alert.severity) + 1]
    return owner is not None and not any(at - timers.owners.get((one, owner), -QUIET) < QUIET for one in as_bad)


def _ready_time(kind: NoticeKind, group: str, members: Sequence[DueAlert], timers: GroupTimers) -> Instant:
    """When a group is ready: with its first ready alert, but not too soon after its last notification."""
    ready = min(one.ready_at for one in members)
    if kind not in NEW_ALERTS:
        return ready
    before = timers.groups.get((kind, group))
    # The first alert of a run or a node does not wait for a burst, except for one of such alerts.
    first = min((one.ready_at for one in members if _is_first(one.alert, timers, one.ready_at)), default=math.inf)
    if len(timers.firsts) >= BURST and first - timers.firsts[-BURST] < BURST_WITHIN:
        first = math.inf
    if before is not None:
        first = max(first, before.at + FIRST_PAUSE)
        is_critical = any(one.alert.severity == "critical" for one in members)
        pause = PAUSES[min(before.times, len(PAUSES) - 1)]
        ready = max(ready, before.at + (min(pause, CRITICAL_PAUSE) if is_critical else pause))
    if len(timers.recent) >= BURST and ready - timers.recent[-BURST] < BURST_WITHIN:
        ready = max(ready, timers.recent[-1] + BURST_PAUSE)
    return min(ready, first)


def _merged(ready: Mapping[str, list[DueAlert]]) -> Mapping[str, list[DueAlert]]:
    """One group per node. If these are too many: one per rule and cluster; if still too many: one for all."""
    per_node = Counter(_node(members) for members in ready.values())
    merged: dict[str, list[DueAlert]] = {}
    for group, members in ready.items():
        node = _node(members)
        merged.setdefault(group if node is None or per_node[node] == 1 else f"node {node}", []).extend(members)
    if len(merged) <= GROUPS:
        return merged
    everything = [one for members in merged.values() for one in members]
    wider = _by(everything, lambda one: f"{one.alert.rule} {one.alert.cluster}")
    return wider if len(wider) <= GROUPS else {"": everything}


def _advanced(
    timers: GroupTimers, kind: NoticeKind, ready: Mapping[str, Sequence[DueAlert]], now: Instant
) -> GroupTimers:
    if not ready or kind not in NEW_ALERTS:
        return timers
    groups = {key: one for key, one in timers.groups.items() if now - one.at < QUIET}
    for group in ready:
        before = groups.pop((kind, group), None)
        groups[kind, group] = GroupTimer(now, 1 if before is None else before.times + 1)
    owners = {owner: at for owner, at in timers.owners.items() if 0 <= now - at < QUIET}
    first_groups = sum(any(_is_first(one.alert, timers, now) for one in members) for members in ready.values())
    firsts = (*timers.firsts, *(now,) * min(first_groups, GROUPS))[-BURST:]
    alerts = [one.alert for members in ready.values() for one in members]
    owners |= {(alert.severity, owner): now for alert in alerts if (owner := _owner(alert)) is not None}
    return GroupTimers(
        dict(list(groups.items())[-GROUPS_REMEMBERED:]),
        (*timers.recent, *(now,) * min(len(ready), GROUPS))[-BURST:],
        dict(list(owners.items())[-OWNERS_REMEMBERED:]),
        firsts,
    )


def _notice(
    kind: NoticeKind,
    channels: tuple[str, ...],
    group: str,
    members: Sequence[DueAlert],
    alerts: Sequence[Alert],
    now: Instant,
) -> Notice:
    worst = sorted(alerts, key=lambda alert: (SEVERITIES.index(alert.severity), alert.since, alert.subject))
    runs = {alert.run for alert in alerts}
    is_mixed = len({alert.rule for alert in alerts}) > 1
    reasons = list(dict.fromkeys(one.reason for one in members))
    # The same alerts with the same numbers of notifications are the same notification.
    text = "\n".join(sorted(f"{alert.id} {alert.notices}" for alert in alerts))
    return Notice(
        key=f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}",
        kind="digest" if is_mixed and kind in NEW_ALERTS else kind,
        reason="; ".join(reasons[:REASONS]) + (", and others" if reasons[REASONS:] else ""),
        severity="info" if kind == "acknowledged" else worst[0].severity,
        at=now,
        channels=channels,
        group=group,
        alerts=tuple(worst[:CARRIED]),
        more=max(0, len(worst) - CARRIED),
        run=runs.pop() if len(runs) == 1 else None,
        lines=_counts(alerts) if len(alerts) > CARRIED or (is_mixed and len(alerts) > COUNTED_ABOVE) else (),
    )


def _counts(alerts: Iterable[Alert]) -> tuple[str, ...]:
    """How many of each rule, the worst first: `412 × gpu-hot (critical)`."""
    counts = Counter((SEVERITIES.index(alert.severity), alert.rule) for alert in alerts)
    lines = [f"{count:,} × {rule} ({SEVERITIES[rank]})" for (rank, rule), count in sorted(counts.items())]
    return (f"{counted(counts.total(), 'alert')} at once", *lines)


def _waiting(alert: Alert, kind: NoticeKind, channels: Sequence[str], now: Instant) -> Alert:
    """The alert with its deliveries as waiting, until a channel reports more."""
    kept = [delivery for delivery in alert.delivery if delivery.channel not in channels]
    new = [Delivery(channel=name, kind=kind, state="waiting", at=now) for name in channels]
    return msgspec.structs.replace(alert, delivery=(*kept, *new))
