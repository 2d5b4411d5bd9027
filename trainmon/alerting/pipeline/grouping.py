"""What is due, gathered into few messages: one for eight GPUs of a node, and for ten thousand findings a few. Pure.

Nothing is dropped: a message that stands for more alerts than it carries says how many, and of which rules.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from trainmon.alerting.pipeline.routing import Due, told
from trainmon.lib import Instant, Seconds, counted
from trainmon.model import SEVERITIES, Alert, Delivery, Notice, NoticeKind, Severity

CARRIED = 200
"""Alerts that one notice carries, the worst first; the others are counted in its lines."""

FEW = 8
"""So many alerts of several rules need no list of how many there are of each: the first is read at once."""

GROUPS = 4
"""So many messages of one kind go out at one look; more groups are told as one of their cluster, or all as one."""

PAUSES: tuple[Seconds, ...] = (0.0, 5.0, 15.0, 60.0, 300.0)
"""Before the next message of a group that grows: the first at once, then seldomer; Alertmanager waits 5 min at once."""

CRITICAL_PAUSE: Seconds = 60.0
"""What is critical waits no longer for its group."""

QUIET: Seconds = 600.0
"""A group of which nothing was told for so long begins anew."""

BURST, BURST_WITHIN, BURST_PAUSE = 8, 60.0, 30.0
"""After so many messages in a minute, what begins is told together every 30 s. The first fault of a run or a node is
none of these: it waits only when there were so many of such."""

FIRST_PAUSE: Seconds = 1.5
"""Between two nodes of one group of which nothing was told lately."""

REASONS = 3
"""Of several in one message, so many are named."""

GROUPS_REMEMBERED = 1_000
OWNERS_REMEMBERED = 10_000


Owner = tuple[Severity, str]
"""(how bad it is, the run or the node)"""


class Told(NamedTuple):
    """Of one group: when it was told last, and how many times in a row."""

    at: Instant
    times: int


class GroupTimers(msgspec.Struct, frozen=True):
    """What was told lately, so that a fault that spreads does not flood."""

    groups: Mapping[tuple[NoticeKind, str], Told] = {}
    recent: tuple[Instant, ...] = ()
    """When the last messages went out that begin something."""
    owners: Mapping[Owner, Instant] = {}
    """When anything so bad was told last of each run and node."""
    firsts: tuple[Instant, ...] = ()
    """When the last messages went out with the first fault of a run or a node."""


class Grouped(NamedTuple):
    """The notices of one look, the alerts as they are after it, and the pace."""

    notices: tuple[Notice, ...]
    alerts: tuple[Alert, ...]
    pace: GroupTimers
    next_at: Instant | None
    """When what waits is told."""


BEGINS: frozenset[NoticeKind] = frozenset({"fire", "event"})
"""The kinds that may come in thousands at once, and are paced."""


def gather(dues: Sequence[Due], pace: GroupTimers, now: Instant) -> Grouped:
    """Make the notices of what is ripe; what is not waits."""
    notices: list[Notice] = []
    alerts: dict[str, Alert] = {}
    later: list[Instant] = []
    by_kind: dict[tuple[NoticeKind, tuple[str, ...]], list[Due]] = {}
    for one in dues:
        by_kind.setdefault((one.kind, one.channels), []).append(one)
    for (kind, channels), mine in by_kind.items():
        bunches = _bunches(mine)
        times = {group: _ready_at(kind, group, bunch, pace) for group, bunch in bunches.items()}
        ready = _with_company({group: bunch for group, bunch in bunches.items() if times[group] <= now}, bunches)
        later += [at for group, at in times.items() if group not in ready]
        for group, bunch in _merged(ready).items():
            after = [told(one, now) for one in bunch]
            alerts |= {alert.id: _waiting(alert, kind, channels, now) for alert in after}
            notices.append(_notice(kind, channels, group, bunch, [alerts[alert.id] for alert in after], now))
        pace = _paced(pace, kind, ready, now)
    return Grouped(tuple(notices), tuple(alerts.values()), pace, min(later, default=None))


def group_of(alert: Alert) -> str:
    """What is told together: the GPUs of a node, the nodes and disks of a cluster."""
    match alert.subject.partition(":")[0]:
        case "gpu" if alert.node:
            return f"{alert.rule} {alert.node}"
        case "node" | "disk" | "source":
            return f"{alert.rule} {alert.cluster}"
    return f"{alert.rule} {alert.subject}"


def worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    return sorted(alerts, key=lambda alert: (SEVERITIES.index(alert.severity), alert.since, alert.subject))


def _bunches(dues: Sequence[Due]) -> dict[str, list[Due]]:
    bunches: dict[str, list[Due]] = {}
    for one in dues:
        bunches.setdefault(group_of(one.alert), []).append(one)
    return bunches


def _with_company(ready: dict[str, list[Due]], bunches: Mapping[str, list[Due]]) -> dict[str, list[Due]]:
    """With a message about a node goes what else waits to be told of that node."""
    nodes = {_node(bunch) for bunch in ready.values()} - {None}
    return {group: bunch for group, bunch in bunches.items() if group in ready or _node(bunch) in nodes}


def _node(bunch: Iterable[Due]) -> str | None:
    """The one node that all of it is about."""
    nodes = {one.alert.node for one in bunch}
    return nodes.pop() if len(nodes) == 1 else None


def _owner(alert: Alert) -> str | None:
    return alert.node or alert.run


def _is_first(alert: Alert, pace: GroupTimers, at: Instant) -> bool:
    """Whether nothing so bad was told of its run or its node lately."""
    owner = _owner(alert)
    as_bad = SEVERITIES[: SEVERITIES.index(alert.severity) + 1]
    return owner is not None and not any(at - pace.owners.get((one, owner), -QUIET) < QUIET for one in as_bad)


def _first_at(kind: NoticeKind, group: str, bunch: Sequence[Due], pace: GroupTimers) -> Instant | None:
    """When a group is told for the sake of a run or a node of which nothing was told lately."""
    ripe = min((one.ripe_at for one in bunch if _is_first(one.alert, pace, one.ripe_at)), default=None)
    if ripe is None or (len(pace.firsts) >= BURST and ripe - pace.firsts[-BURST] < BURST_WITHIN):
        return None
    before = pace.groups.get((kind, group))
    return ripe if before is None else max(ripe, before.at + FIRST_PAUSE)


def _ready_at(kind: NoticeKind, group: str, bunch: Sequence[Due], pace: GroupTimers) -> Instant:
    """When a group is told: as soon as one of it is ripe, and not too soon after it was told before."""
    ripe = min(one.ripe_at for one in bunch)
    if kind not in BEGINS:
        return ripe
    first = _first_at(kind, group, bunch, pace)
    before = pace.groups.get((kind, group))
    if before is not None:
        pause = PAUSES[min(before.times, len(PAUSES) - 1)]
        is_critical = any(one.alert.severity == "critical" for one in bunch)
        ripe = max(ripe, before.at + (min(pause, CRITICAL_PAUSE) if is_critical else pause))
    if len(pace.recent) >= BURST and ripe - pace.recent[-BURST] < BURST_WITHIN:
        ripe = max(ripe, pace.recent[-1] + BURST_PAUSE)
    return ripe if first is None else min(ripe, first)


def _merged(ready: Mapping[str, list[Due]]) -> Mapping[str, list[Due]]:
    """All of one node as one. Few groups as they are; many by rule and cluster; still many as one."""
    ready = _by_node(ready)
    if len(ready) <= GROUPS:
        return ready
    wider: dict[str, list[Due]] = {}
    for bunch in ready.values():
        for one in bunch:
            wider.setdefault(f"{one.alert.rule} {one.alert.cluster}", []).append(one)
    if len(wider) <= GROUPS:
        return wider
    return {"": [one for bunch in ready.values() for one in bunch]}


def _by_node(ready: Mapping[str, list[Due]]) -> Mapping[str, list[Due]]:
    groups = Counter(_node(bunch) for bunch in ready.values())
    found: dict[str, list[Due]] = {}
    for group, bunch in ready.items():
        node = _node(bunch)
        found.setdefault(group if node is None or groups[node] == 1 else f"node {node}", []).extend(bunch)
    return found


def _paced(pace: GroupTimers, kind: NoticeKind, ready: Mapping[str, Sequence[Due]], now: Instant) -> GroupTimers:
    if not ready or kind not in BEGINS:
        return pace
    groups = {key: one for key, one in pace.groups.items() if now - one.at < QUIET}
    for group in ready:
        before = groups.pop((kind, group), None)
        groups[kind, group] = Told(now, 1 if before is None else before.times + 1)
    groups = dict(list(groups.items())[-GROUPS_REMEMBERED:])
    sent = min(len(ready), GROUPS)
    owners = {owner: at for owner, at in pace.owners.items() if 0 <= now - at < QUIET}
    told_now = [one.alert for bunch in ready.values() for one in bunch]
    with_first = sum(any(_is_first(one.alert, pace, now) for one in bunch) for bunch in ready.values())
    firsts = (*pace.firsts, *(now,) * min(with_first, GROUPS))[-BURST:]
    owners |= {(alert.severity, owner): now for alert in told_now if (owner := _owner(alert)) is not None}
    owners = dict(list(owners.items())[-OWNERS_REMEMBERED:])
    return GroupTimers(groups, (*pace.recent, *(now,) * sent)[-BURST:], owners, firsts)


def _notice(
    kind: NoticeKind, channels: tuple[str, ...], group: str, bunch: Sequence[Due], alerts: Sequence[Alert], now: Instant
) -> Notice:
    worst = worst_first(alerts)
    runs = {alert.run for alert in alerts}
    is_mixed = len({alert.rule for alert in alerts}) > 1
    reasons = list(dict.fromkeys(one.reason for one in bunch))
    return Notice(
        key=_key(kind, alerts),
        kind="digest" if is_mixed and kind in BEGINS else kind,
        reason="; ".join(reasons[:REASONS]) + (", and the like" if reasons[REASONS:] else ""),
        severity="info" if kind == "acknowledged" else worst[0].severity,
        at=now,
        channels=channels,
        group=group,
        alerts=tuple(worst[:CARRIED]),
        more=max(0, len(worst) - CARRIED),
        run=runs.pop() if len(runs) == 1 else None,
        lines=_counts(alerts) if len(alerts) > CARRIED or (is_mixed and len(alerts) > FEW) else (),
    )


def _counts(alerts: Iterable[Alert]) -> tuple[str, ...]:
    """How many of each rule, the worst first: `412 × gpu-hot (critical)`."""
    counts = Counter((SEVERITIES.index(alert.severity), alert.rule) for alert in alerts)
    lines = [f"{count:,} × {rule} ({SEVERITIES[rank]})" for (rank, rule), count in sorted(counts.items())]
    return (f"{counted(counts.total(), 'alert')} at once", *lines)


def _key(kind: NoticeKind, alerts: Sequence[Alert]) -> str:
    """The same happening makes the same key: of each alert its id, and the number of this notice of it."""
    text = "\n".join(sorted(f"{alert.id} {alert.notices}" for alert in alerts))
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _waiting(alert: Alert, kind: NoticeKind, channels: Sequence[str], now: Instant) -> Alert:
    """What the pane shows until the channel has said more."""
    kept = [delivery for delivery in alert.delivery if delivery.channel not in channels]
    new = [Delivery(channel=name, kind=kind, state="waiting", at=now) for name in channels]
    return msgspec.structs.replace(alert, delivery=(*kept, *new))
