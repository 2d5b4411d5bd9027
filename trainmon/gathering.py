"""What is due, gathered into few messages: one for eight GPUs of a node, and for ten thousand findings a few. Pure.

Nothing is dropped: a message that stands for more alerts than it carries says how many, and of which rules.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from trainmon.clock import Instant, Seconds
from trainmon.model_alerts import SEVERITIES, Alert, Delivery, Notice, NoticeKind
from trainmon.routing import Due, told
from trainmon.text import counted

CARRIED = 200
"""Alerts that one notice carries, the worst first; the others are counted in its lines."""

GROUPS = 4
"""So many messages of one kind go out at one look; more groups are told as one of their cluster, or all as one."""

PAUSES: tuple[Seconds, ...] = (0.0, 5.0, 15.0, 60.0, 300.0)
"""Before the next message of a group that grows: the first at once, then seldomer; Alertmanager waits 5 min at once."""

CRITICAL_PAUSE: Seconds = 60.0
"""What is critical waits no longer for its group."""

QUIET: Seconds = 600.0
"""A group of which nothing was told for so long begins anew."""

BURST, BURST_WITHIN, BURST_PAUSE = 8, 60.0, 30.0
"""After so many messages in a minute, what begins is told together every 30 s."""

GROUPS_REMEMBERED = 1_000


class Told(NamedTuple):
    """Of one group: when it was told last, and how many times in a row."""

    at: Instant
    times: int


class Pace(msgspec.Struct, frozen=True):
    """What was told lately, so that a fault that spreads does not flood."""

    groups: Mapping[tuple[NoticeKind, str], Told] = {}
    recent: tuple[Instant, ...] = ()
    """When the last messages went out that begin something."""


class Gathered(NamedTuple):
    """The notices of one look, the alerts as they are after it, and the pace."""

    notices: tuple[Notice, ...]
    alerts: tuple[Alert, ...]
    pace: Pace
    next_at: Instant | None
    """When what waits is told."""


BEGINS: frozenset[NoticeKind] = frozenset({"fire", "event"})
"""The kinds that may come in thousands at once, and are paced."""


def gather(dues: Sequence[Due], pace: Pace, now: Instant) -> Gathered:
    """Make the notices of what is ripe; what is not waits."""
    notices: list[Notice] = []
    alerts: dict[str, Alert] = {}
    later: list[Instant] = []
    by_kind: dict[tuple[NoticeKind, tuple[str, ...]], list[Due]] = {}
    for one in dues:
        by_kind.setdefault((one.kind, one.channels), []).append(one)
    for (kind, channels), mine in by_kind.items():
        bunches = _bunches(mine)
        ready: dict[str, list[Due]] = {}
        for group, bunch in bunches.items():
            at = _ready_at(kind, group, bunch, pace)
            if at > now:
                later.append(at)
            else:
                ready[group] = bunch
        for group, bunch in _merged(ready).items():
            after = [told(one, now) for one in bunch]
            alerts |= {alert.id: _waiting(alert, kind, channels, now) for alert in after}
            notices.append(_notice(kind, channels, group, bunch, [alerts[alert.id] for alert in after], now))
        pace = _paced(pace, kind, ready, now)
    return Gathered(tuple(notices), tuple(alerts.values()), pace, min(later, default=None))


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


def _ready_at(kind: NoticeKind, group: str, bunch: Sequence[Due], pace: Pace) -> Instant:
    """When a group is told: as soon as one of it is ripe, and not too soon after it was told before."""
    ripe = min(one.ripe_at for one in bunch)
    if kind not in BEGINS:
        return ripe
    before = pace.groups.get((kind, group))
    if before is not None:
        pause = PAUSES[min(before.times, len(PAUSES) - 1)]
        is_critical = any(one.alert.severity == "critical" for one in bunch)
        ripe = max(ripe, before.at + (min(pause, CRITICAL_PAUSE) if is_critical else pause))
    if len(pace.recent) >= BURST and ripe - pace.recent[-BURST] < BURST_WITHIN:
        ripe = max(ripe, pace.recent[-1] + BURST_PAUSE)
    return ripe


def _merged(ready: Mapping[str, list[Due]]) -> Mapping[str, list[Due]]:
    """Few groups as they are; many by rule and cluster; still many as one."""
    if len(ready) <= GROUPS:
        return ready
    wider: dict[str, list[Due]] = {}
    for bunch in ready.values():
        for one in bunch:
            wider.setdefault(f"{one.alert.rule} {one.alert.cluster}", []).append(one)
    if len(wider) <= GROUPS:
        return wider
    return {"": [one for bunch in ready.values() for one in bunch]}


def _paced(pace: Pace, kind: NoticeKind, ready: Mapping[str, object], now: Instant) -> Pace:
    if not ready or kind not in BEGINS:
        return pace
    groups = {key: one for key, one in pace.groups.items() if now - one.at < QUIET}
    for group in ready:
        before = groups.pop((kind, group), None)
        groups[kind, group] = Told(now, 1 if before is None else before.times + 1)
    groups = dict(list(groups.items())[-GROUPS_REMEMBERED:])
    sent = min(len(ready), GROUPS)
    return Pace(groups, (*pace.recent, *(now,) * sent)[-BURST:])


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
        reason=reasons[0] if len(reasons) == 1 else f"{reasons[0]}, and the like",
        severity="info" if kind == "acknowledged" else worst[0].severity,
        at=now,
        channels=channels,
        group=group,
        alerts=tuple(worst[:CARRIED]),
        more=max(0, len(worst) - CARRIED),
        run=runs.pop() if len(runs) == 1 else None,
        lines=_counts(alerts) if len(alerts) > CARRIED or is_mixed else (),
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
