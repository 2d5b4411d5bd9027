"""Routing: which channels are notified of an alert, and why now. Every notification has a reason. Pure.

Grouping: due alerts become a few notifications: one for eight GPUs of a node, a few for ten thousand alerts; the first
one of a failure has its cause. Nothing is dropped: a notification of more alerts than it carries says how many, and of
which rules.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import NOTIFY_END_WITHIN, RULE_OFF
from trainmon.alerting.pipeline.quiet import may_be_hidden_soon
from trainmon.alerting.rules import CHANNEL, TEST
from trainmon.alerting.rules.base import NOT_RUNNING, NOT_WATCHED
from trainmon.alerting.rules.runs.steps import STALL_RULES
from trainmon.analysis.attempts import leading, told
from trainmon.analysis.explanation import brief
from trainmon.analysis.retries import ENDED_ON_PURPOSE
from trainmon.lib import DAY, HOUR, Instant, Seconds, ago, counted, group_by
from trainmon.model import (
    SEVERITIES,
    Alert,
    Attempt,
    Delivery,
    Notice,
    NoticeKind,
    RetryPolicy,
    Route,
    Silence,
    State,
    is_worse,
)

WORSE_AGAIN: Seconds = 1_800.0
"""An alert that was critical, got better and is critical again is notified again after half an hour at the earliest."""

GROUP_WAIT_SHARE = 0.05
GROUP_WAIT_AT_MOST: Seconds = 10.0
CRITICAL_GROUP_WAIT: Seconds = 4.0
"""After its `for`, an alert may wait for others of its group: a twentieth of its `for`, at most 10 s; a critical one at
most 4 s."""

RESOLVE_WAIT: Seconds = 3.0
"""Resolved alerts wait for others of their group: eight GPUs recover within this time."""
RESOLVE_WAIT_AT_MOST: Seconds = 120.0
"""While others of their rule and cluster still recover, they wait longer, at most this long: twenty nodes come back one
after the other."""

INHIBIT_WAIT: Seconds = 30.0
"""An alert waits at most this long for a pending alert that may inhibit it."""


END_REASONS = {
    NOT_WATCHED: "no longer watched (it left the config, or its job ended); that does not mean that it is ok",
    NOT_RUNNING: "its run has ended; that does not mean that it is ok",
    RULE_OFF: "its rule is disabled; that does not mean that it is ok",
}
"""Why an alert ended, if its condition is not known to be gone."""


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts reach people."""

    routes: tuple[Route, ...] = ()
    """One route per channel, in the order of the config."""
    repeat: Seconds = 4 * HOUR
    """The interval at which an unacknowledged critical alert is notified again (Alertmanager: repeat_interval)."""
    group_wait: Seconds = 0.5
    """How long a new alert waits for others of its group; at most a second."""
    windows: tuple[Silence, ...] = ()
    """The maintenance windows of the config, from `made_at` to `until`."""


class HeartbeatSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which notifications are sent although nothing is wrong."""

    every: Seconds | None = 4 * HOUR
    """The interval of heartbeats; None: no heartbeat."""
    test_every: Seconds | None = 7 * DAY
    """The interval of test notifications that ask for an acknowledgement; None: no test."""
    start: bool = True
    """Whether the start and the end of this program are notified."""
    switch: bool | None = None
    """Whether a dead-man's switch is pinged; None if that is not known here."""
    host: str = ""
    """The machine that watches. With several daemons, a notification names its daemon."""


class DueAlert(NamedTuple):
    """One alert that must be notified: as what, why, and on which channels."""

    alert: Alert
    kind: NoticeKind
    reason: str
    channels: tuple[str, ...]
    ready_at: Instant
    """Until then it waits for others of its group."""


def route(alerts: Mapping[str, Alert], routing: Routing, now: Instant) -> dict[str, DueAlert]:
    """What must be notified of these alerts now, by alert id."""
    hidden_soon = may_be_hidden_soon(alerts.values())
    recovering = {(one.rule, one.cluster) for one in alerts.values() if one.phase == "recovering" and one.notified_on}
    due_alerts = (due(alert, routing, now, alert.id in hidden_soon) for alert in alerts.values())
    return {one.alert.id: _with_recovering(one, recovering, now) for one in due_alerts if one is not None}


def _with_recovering(due: DueAlert, recovering: Collection[tuple[str, str]], now: Instant) -> DueAlert:
    """The end of an alert waits for those of its rule and cluster that still recover."""
    if due.kind != "resolve" or (due.alert.rule, due.alert.cluster) not in recovering:
        return due
    at_most = (now if due.alert.resolved_at is None else due.alert.resolved_at) + RESOLVE_WAIT_AT_MOST
    return due._replace(ready_at=max(due.ready_at, min(now + RESOLVE_WAIT, at_most)))


def due(alert: Alert, routing: Routing, now: Instant, may_be_hidden: bool = False) -> DueAlert | None:
    """What must be notified of one alert now."""
    if alert.flapping and not alert.flapping_notified and (flaps := _flaps(alert, routing, now)) is not None:
        return flaps
    if not alert.is_open:
        return _missed(alert, routing, now) or _resolved(alert, routing, now)
    is_taken = alert.event or alert.rule == TEST or alert.acknowledged_by is not None
    escalated = None if is_taken else _escalated(alert, routing, now)
    quiet = quiet_because(alert)
    if not alert.is_firing or quiet not in (None, "flapping"):
        return None
    if alert.notified_as is not None and is_worse(alert.severity, alert.notified_as):
        channels = (*channels_for(alert, routing), *_still_configured(alert, routing))
        return (
            _due(alert, "worse", f"got worse: {alert.severity} now, it was {alert.notified_as}", channels, now)
            or escalated
        )
    if quiet is not None:  # of what flaps, only that it got worse is news
        return escalated
    if alert.notified_as is None:
        fired = alert.found_at if alert.fired_at is None else alert.fired_at
        held_for = 0.0 if alert.pending_since is None else max(0.0, fired - alert.pending_since)
        if may_be_hidden and now - fired < INHIBIT_WAIT and held_for > 0:
            return None
        return _first(alert, routing, fired, held_for) or escalated
    if is_taken or alert.phase == "recovering":
        return None
    return escalated or _repeated(alert, routing, now)


def _due(alert: Alert, kind: NoticeKind, reason: str, channels: tuple[str, ...], ready_at: Instant) -> DueAlert | None:
    """A due alert on these channels, each once; None without channels."""
    return DueAlert(alert, kind, reason, tuple(dict.fromkeys(channels)), ready_at) if channels else None


def quiet_because(alert: Alert) -> str | None:
    """Why a firing alert is not notified; None if it may be."""
    if alert.muted_until is not None:
        return f"muted: {alert.muted_why}" if alert.muted_why else "muted"
    if alert.inhibited_by is not None:
        return f"hidden by {alert.inhibited_by}"
    return "flapping" if alert.flapping else None


def channels_for(alert: Alert, routing: Routing) -> tuple[str, ...]:
    """The channels that are notified of an alert at once."""
    if alert.rule == TEST:
        return tuple(route.channel for route in routing.routes if not route.fallback)
    if alert.subject.startswith(CHANNEL) and alert.severity != "critical":
        # A failing channel is notified by others: by the fallbacks and by whoever wants such alerts. Without a
        # fallback, every other channel is notified, whatever it wants.
        others = [route for route in routing.routes if route.channel != alert.subject.removeprefix(CHANNEL)]
        if any(route.fallback for route in others):
            others = [route for route in others if route.fallback or (_wants(route, alert) and not route.after)]
        return tuple(route.channel for route in others)
    return tuple(route.channel for route in routing.routes if _wants(route, alert) and not route.after)


def notified(due: DueAlert, now: Instant) -> Alert:
    """The alert after its notification. Its deliveries wait, until a channel reports more."""
    alert, kind = due.alert, due.kind
    kept = (delivery for delivery in alert.delivery if delivery.channel not in due.channels)
    new = (Delivery(channel=name, kind=kind, state="waiting", at=now) for name in due.channels)
    alert = replace(alert, notified_at=now, notices=alert.notices + 1, delivery=(*kept, *new))
    if kind in ("cause", "resolve"):
        return alert if kind == "cause" else replace(alert, notified_on=())
    is_milder = alert.notified_as is not None and not is_worse(alert.severity, alert.notified_as)
    is_old_news = kind in ("flapping", "repeat", "acknowledged") or (kind == "escalate" and is_milder)
    was_notified = alert.is_open and alert.first_notified_at is not None
    on = tuple(dict.fromkeys((*alert.notified_on, *due.channels)))
    return replace(
        alert,
        notified_on=on if alert.is_open or kind == "flapping" else alert.notified_on,
        notified_as=alert.notified_as if alert.is_open and is_old_news else alert.severity,
        first_notified_at=alert.first_notified_at if was_notified else now,
        flapping_notified=alert.flapping_notified or kind == "flapping",
        repeats=alert.repeats + (kind == "repeat"),
        escalated=alert.escalated + (len(due.channels) if kind == "escalate" else 0),
    )


def downgraded(alert: Alert, now: Instant) -> Alert:
    """An alert that has been less severe than notified for half an hour: if it gets worse, it is notified again."""
    is_better = alert.notified_as is not None and is_worse(alert.notified_as, alert.severity)
    has_waited = alert.notified_at is not None and now - alert.notified_at >= WORSE_AGAIN
    return replace(alert, notified_as=alert.severity) if is_better and has_waited else alert


def unmuted(alert: Alert) -> Alert:
    """An alert whose silence has ended: if it fires and nobody acknowledged it, it is notified again."""
    is_taken = alert.phase == "firing" and not alert.event and alert.acknowledged_by is not None
    if is_taken or alert.phase == "recovering":
        return replace(alert, notified_as=alert.notified_as or alert.severity)
    return alert if alert.phase != "firing" or alert.event else replace(alert, notified_as=None, first_notified_at=None)


def due_acknowledgement(alert: Alert, routing: Routing, via: str, now: Instant) -> DueAlert | None:
    """The acknowledgement of an alert, if others were notified of it too, or if it came from a phone."""
    channels = _still_configured(alert, routing, fallbacks=True)
    wanted = channels if len(channels) > 1 or via == "phone" else ()
    return _due(alert, "acknowledged", f"acknowledged by {alert.acknowledged_by}", wanted, now)


def _flaps(alert: Alert, routing: Routing, now: Instant) -> DueAlert | None:
    """That an alert flaps: one notification in place of one per episode."""
    if alert.muted_until is not None or alert.inhibited_by is not None:
        return None
    return _due(
        alert,
        "flapping",
        "flapping: no more notifications until it is stable",
        _still_configured(alert, routing) or channels_for(alert, routing),
        now,
    )


def _still_configured(alert: Alert, routing: Routing, fallbacks: bool = False) -> tuple[str, ...]:
    """The channels that were notified of it and are still in the config. A fallback gets new notifications only for
    channels that fail."""
    known = {route.channel for route in routing.routes if fallbacks or not route.fallback}
    return tuple(name for name in alert.notified_on if name in known)


def _wants(route: Route, alert: Alert) -> bool:
    return (
        not route.fallback
        and not is_worse(route.severity, alert.severity)
        and (not route.runs or alert.run is None or alert.run in route.runs)
        and (not route.rules or alert.rule in route.rules)
    )


def _first(alert: Alert, routing: Routing, fired: Instant, held_for: Seconds) -> DueAlert | None:
    channels = channels_for(alert, routing)
    if alert.rule == TEST:
        return _due(alert, "test", "the regular test of this channel", channels, fired)
    at_most = CRITICAL_GROUP_WAIT if alert.severity == "critical" else GROUP_WAIT_AT_MOST
    ready = fired + min(1.0, routing.group_wait) + min(at_most, GROUP_WAIT_SHARE * held_for)
    if alert.event:
        return _due(alert, "event", "happened", channels, ready)
    if not alert.notified_on or not channels:
        return _due(alert, "fire", "fired", channels, ready)
    channels = (*channels, *_still_configured(alert, routing))
    return _due(alert, "fire", "no longer muted or flapping, and still firing", channels, ready)


def _escalated(alert: Alert, routing: Routing, now: Instant) -> DueAlert | None:
    waited = now - (alert.first_notified_at or alert.fired_at or now)
    channels = tuple(
        route.channel
        for route in routing.routes
        if 0 < route.after <= waited and _wants(route, alert) and route.channel not in alert.notified_on
    )
    return _due(alert, "escalate", f"not acknowledged for {ago(waited)}", channels, now)


def _repeated(alert: Alert, routing: Routing, now: Instant) -> DueAlert | None:
    if alert.severity != "critical" or alert.notified_at is None or now - alert.notified_at < routing.repeat:
        return None
    fired = alert.since if alert.fired_at is None else alert.fired_at
    known = "still firing" if alert.data == "ok" else "not known to be resolved"
    return _due(
        alert,
        "repeat",
        f"{known} after {ago(now - fired)}, not acknowledged",
        (*_still_configured(alert, routing), *channels_for(alert, routing)),
        now,
    )


def _missed(alert: Alert, routing: Routing, now: Instant) -> DueAlert | None:
    """An alert that resolved before its notification, in a flood or around a crash. It is notified nevertheless."""
    is_recent = alert.resolved_at is not None and now - alert.resolved_at < NOTIFY_END_WITHIN
    if alert.notified_as is not None or alert.fired_at is None or not is_recent or alert.rule == TEST:
        return None
    kind: NoticeKind = "event" if alert.event else "fire"
    return _due(alert, kind, "it fired and has resolved since", channels_for(alert, routing), now)


def _resolved(alert: Alert, routing: Routing, now: Instant) -> DueAlert | None:
    """The end of an alert, on the channels that were notified of its start."""
    if not alert.notified_on or alert.event or alert.rule == TEST or alert.muted_until is not None or alert.flapping:
        return None
    unwanted = {route.channel for route in routing.routes if not route.resolved}
    channels = tuple(name for name in _still_configured(alert, routing, fallbacks=True) if name not in unwanted)
    over = now if alert.resolved_at is None else alert.resolved_at
    return _due(alert, "resolve", END_REASONS.get(alert.ended or "", "over"), channels, over + RESOLVE_WAIT)


# ---- grouping: due alerts become a few notifications -----------------------------------------------------------------

CARRIED = 200
"""Alerts that one notification carries, the worst first. Its lines count the others."""

COUNTED_ABOVE = 8
"""With more alerts of several rules, a notification lists the number of alerts of each rule."""

GROUPS = 4
"""Notifications of one kind per evaluation. More groups are merged by rule and cluster, or all into one."""

PAUSES: tuple[Seconds, ...] = (5.0, 15.0, 60.0, 300.0)
"""The pauses after the notifications of a growing group (Alertmanager: group_interval, always 5 min)."""

CRITICAL_PAUSE: Seconds = 60.0
"""A critical alert waits at most this long for its group."""

AGAIN_PAUSE: Seconds = 180.0
"""So long if all that waits fired before, within 20 minutes: a storm of one subject rings every three minutes. A run
that hangs, continues and hangs again needs longer than this."""

NEWS_WITHIN: Seconds = 5.0
"""The first critical alert of a subject waits at most this long, and only if its group was notified just before; in a
burst, if anything was."""

QUIET: Seconds = 600.0
"""A group or a subject without a notification for this long starts again."""

BURST, BURST_WITHIN, BURST_PAUSE = 8, 60.0, 30.0
"""After so many notifications in a minute, new alerts are notified together every 30 s. The first critical alert of a
subject does not wait for that. Groups that are merged count as what they would have been, up to GROUPS: so a storm does
not end with every pause."""

REASONS = 3
"""The reasons that one notification names."""

REMEMBERED = 20_000
"""Groups and subjects."""


NEWS, NEW = ("", "news"), ("", "new")
Paces = Mapping[tuple[str, str], tuple[Instant, ...]]
"""The times of the last notifications, so that a spreading fault does not flood the channels: by kind and group; by
`critical` and subject; of all new alerts (NEW), and of all with a first critical one (NEWS)."""


class Grouped(NamedTuple):
    """The notifications of one evaluation, and the alerts and paces after it."""

    notices: tuple[Notice, ...]
    alerts: tuple[Alert, ...]
    paces: Paces
    next_at: Instant | None
    """When the next waiting group is notified."""


NEW_ALERTS: frozenset[NoticeKind] = frozenset({"fire", "event"})
TOGETHER: frozenset[NoticeKind] = frozenset({"resolve", "flapping"})
"""The kinds of which all alerts are one group."""
PACED = NEW_ALERTS | TOGETHER
"""The kinds that may come in thousands. Only these are delayed."""


def group_alerts(due_alerts: Sequence[DueAlert], paces: Paces, now: Instant) -> Grouped:
    """The notifications of the groups that are ready. The others wait."""
    notices: list[Notice] = []
    alerts: dict[str, Alert] = {}
    later: list[Instant] = []
    for (kind, channels, why), mine in group_by(due_alerts, _sort_key).items():
        groups = group_by(mine, lambda one: group_of(one.alert))
        key = " ".join((*channels, why)) if kind in TOGETHER else ""
        firsts = {group: found for group, members in groups.items() if (found := _firsts(kind, members, paces, now))}
        times = {group: _first_time((kind, group), found, paces) for group, found in firsts.items()}
        is_storm = bool(firsts) and _is_burst(NEWS, paces, now)
        if is_now := min(times.values(), default=math.inf) <= now:
            times = dict.fromkeys(firsts, now)  # all first critical alerts that wait go together
        times |= {
            group: _ready_time((kind, key or group), members, paces, now, goes_along=is_now and is_storm)
            for group, members in groups.items()
            if group not in firsts
        }
        # Waiting groups go along with a ready group of the same node.
        nodes = {_node(members) for group, members in groups.items() if times[group] <= now} - {None}
        ready = {
            group: members
            for group, members in groups.items()
            if times[group] <= now or _node(members) in nodes or (key and min(times.values()) <= now)
        }
        later += [at for group, at in times.items() if group not in ready]
        merged = _merged(ready, 1 if key or is_storm else GROUPS)
        for group, members in merged.items():
            after = [notified(one, now) for one in members]
            notices.append(notice := _notice(kind, channels, group, members, after, now))
            alerts |= {one.id: one if one.thread else replace(one, thread=notice.key) for one in after}
        if ready and kind in PACED:
            names: dict[tuple[str, str], int] = {(kind, key or group): 1 for group in ready}
            if kind in NEW_ALERTS:  # what is held back must not wait for ever in a storm of first critical alerts
                by_news = Counter(NEWS if group in firsts else NEW for group in ready if times[group] <= now)
                names |= {name: min(count, GROUPS) for name, count in by_news.items()}
                critical = (one for members in ready.values() for one in members if one.alert.severity == "critical")
                names |= {("critical", one.alert.subject): 1 for one in critical}
            paces = _advanced(paces, names, now)
    return Grouped(tuple(notices), tuple(alerts.values()), paces, min(later, default=None))


def _sort_key(due: DueAlert) -> tuple[NoticeKind, tuple[str, ...], str]:
    """What is never mixed in one notification. An alert that is no longer watched is not one that is over."""
    return due.kind, due.channels, due.reason if due.kind == "resolve" else ""


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


def _firsts(kind: NoticeKind, members: Iterable[DueAlert], paces: Paces, now: Instant) -> list[DueAlert]:
    """The critical alerts of subjects of which nothing critical was notified lately."""
    return [
        one
        for one in members
        if kind in NEW_ALERTS
        and one.alert.severity == "critical"
        and now - _last(("critical", one.alert.subject), paces) >= QUIET
    ]


def _last(name: tuple[str, str], paces: Paces) -> Instant:
    return paces.get(name, (-math.inf,))[-1]


def _is_burst(name: tuple[str, str], paces: Paces, at: Instant) -> bool:
    times = paces.get(name, ())
    return len(times) >= BURST and at - times[-BURST] < BURST_WITHIN


def _first_time(name: tuple[str, str], firsts: Iterable[DueAlert], paces: Paces) -> Instant:
    """By when the first critical alerts of subjects are notified."""
    fired, ready = min(
        (max(one.alert.fired_at or one.alert.found_at, one.ready_at - NEWS_WITHIN), one.ready_at) for one in firsts
    )
    last = _last(name, paces)
    if _is_burst(NEWS, paces, fired):
        last = max(last, _last(NEWS, paces))
    if fired - last >= NEWS_WITHIN:
        return ready
    return (min(last, fired) if len(paces.get(name, ())) == 1 else fired) + NEWS_WITHIN


def _ready_time(
    name: tuple[str, str], members: Sequence[DueAlert], paces: Paces, now: Instant, *, goes_along: bool
) -> Instant:
    """When a group is ready: with its first ready alert, but not too soon after its last notification. `goes_along`:
    with first critical alerts, which are notified now."""
    ready, kind = min(one.ready_at for one in members), name[0]
    before, last = paces.get(name, ()), _last(name, paces)
    if ready - last < QUIET:
        pause = PAUSES[min(len(before), len(PAUSES)) - 1]
        critical = [one.alert for one in members if kind in NEW_ALERTS and one.alert.severity == "critical"]
        if critical:
            pause = min(pause, AGAIN_PAUSE if all(one.flaps for one in critical) else CRITICAL_PAUSE)
        ready = max(ready, last + pause)
    is_held = kind in NEW_ALERTS and not goes_along and _is_burst(NEW, paces, max(ready, now))
    return max(ready, _last(NEW, paces) + BURST_PAUSE) if is_held else ready


def _merged(ready: Mapping[str, list[DueAlert]], at_most: int = GROUPS) -> Mapping[str, list[DueAlert]]:
    """One group per node. If these are too many: one per rule and cluster; if still too many: one for all."""
    per_node = Counter(_node(members) for members in ready.values())
    merged: dict[str, list[DueAlert]] = {}
    for group, members in ready.items():
        node = _node(members)
        merged.setdefault(group if node is None or per_node[node] == 1 else f"node {node}", []).extend(members)
    if len(merged) <= at_most:
        return merged
    everything = [one for members in merged.values() for one in members]
    wider = group_by(everything, lambda one: f"{one.alert.rule} {one.alert.cluster}")
    return wider if len(wider) <= at_most else {"": everything}


def _advanced(paces: Paces, names: Mapping[tuple[str, str], int], now: Instant) -> Paces:
    """The paces after so many notifications of each name."""
    kept = {name: times for name, times in paces.items() if now - times[-1] < QUIET}
    new = {name: (*kept.pop(name, ()), *(now,) * count)[-BURST:] for name, count in names.items()}
    return dict([*kept.items(), *new.items()][-REMEMBERED:])


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
    # An end has one cause, however many alerts and programs report it.
    names = (alert.cause_of if kind == "cause" else f"{alert.id} {alert.notices}" for alert in alerts)
    text = "\n".join(sorted(map(str, names)))
    return Notice(
        key=f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}",
        kind="digest" if is_mixed and kind in NEW_ALERTS else kind,
        reason="; ".join(reasons[:REASONS]) + (", and others" if reasons[REASONS:] else ""),
        severity="info" if kind in ("acknowledged", "cause") else worst[0].severity,
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
    return (
        f"{counted(counts.total(), 'alert')} at once",
        *(f"{count:,} × {rule} ({SEVERITIES[rank]})" for (rank, rule), count in sorted(counts.items())),
    )


# ---- the cause of a failure in its messages --------------------------------------------------------------------------

ENDS = frozenset({"run-dead", "ended-early", "restarted"})
"""The rules about the end of an attempt that no person ended, and about the start of the next one, which may be the
only message about an end."""

NEAR: Seconds = 120.0
"""An alert begins with the last step or with the end of the job, by the clock of another machine. So the end of its
attempt is at most this long before it."""

LOG_WITHIN: Seconds = 60.0
"""The end of the log and the last checkpoint are awaited this long: they decide about the cause and the loss."""


def with_causes(
    due_alerts: Iterable[DueAlert], alerts: Mapping[str, Alert], state: State, routing: Routing, now: Instant
) -> list[DueAlert]:
    """The due alerts. The first message of a failure names its cause if that is known; else one follow-up does, when
    nothing else of the alert is due. So it is with the ranks that a look names, which may end after the first message
    of a stall: its alert has them."""
    found, explained = list(due_alerts), {alert.cause_of for alert in alerts.values()}
    known_due = {due.alert.id: due for due in found}
    for alert in (one for one in alerts.values() if one.rule in ENDS | STALL_RULES and one.cause_of is None):
        due, is_first = known_due.get(alert.id), alert.first_notified_at is None
        is_told = not is_first and quiet_because(alert) is None
        if not (is_told if due is None else is_first or due.kind == "worse"):
            continue
        channels = _channels(alert, routing) if due is None else due.channels
        if alert.rule in STALL_RULES:
            named, reason = _with_ranks(alert, state), "a look at its ranks has ended"
        else:
            named, reason = _with_cause(alert, state, explained, now), "its cause is known"
        if named is not None and channels:
            explained.add(named.cause_of)
            if due is None:
                found.append(DueAlert(named, "cause", reason, channels, now))
            else:
                found[found.index(due)] = due._replace(alert=named)
    return found


def _with_ranks(alert: Alert, state: State) -> Alert | None:
    """A stall whose summary has the ranks that hold it up."""
    run = state.runs.get(alert.run or "")
    look = None if run is None or not alert.is_firing else leading(run.looks)
    is_named = look is not None and look.ranks and told(look) in alert.summary
    return replace(alert, cause_of=alert.id) if is_named else None


def _with_cause(alert: Alert, state: State, explained: Collection[str | None], now: Instant) -> Alert | None:
    """The alert about an end, with its cause if that is known and no other alert has it."""
    attempt = _ended_attempt(alert, state, now)
    if attempt is None or attempt.attempt_id in explained:
        return None
    policy = state.runs[attempt.run_id].spec.retry if attempt.run_id in state.runs else RetryPolicy()
    lines = brief(attempt, state.attempts.values(), state.actions.values(), policy, state.node_records)
    return replace(alert, cause=lines, cause_of=attempt.attempt_id) if lines else None


def _channels(alert: Alert, routing: Routing) -> tuple[str, ...]:
    """The channels that the alert was notified on, also if its end was notified since. A fallback delivers what they
    cannot."""
    names = {*alert.notified_on, *(one.channel for one in alert.delivery)}
    return tuple(route.channel for route in routing.routes if route.channel in names and not route.fallback)


def _ended_attempt(alert: Alert, state: State, now: Instant) -> Attempt | None:
    """The attempt whose end the alert reports, once everything about that end is known."""
    is_recent = alert.fired_at is not None and now - (alert.resolved_at or now) < NOTIFY_END_WITHIN
    if not (alert.is_firing or is_recent):
        return None
    until = (now if alert.fired_at is None else alert.fired_at) + NEAR
    attempts = [one for one in state.attempts.values() if one.run_id == alert.run]
    ended = (
        one
        for one in attempts
        if alert.since - NEAR <= (one.ended_at or 0.0) <= until
        and (not alert.event or one.start < alert.since)  # not the one that was started
    )
    attempt = max(ended, key=lambda one: one.ended_at or 0.0, default=None)
    if attempt is None or attempt.end is None or any(one.stage == "ending" for one in attempts):
        return None
    is_planned = alert.event and attempt.cause is not None and attempt.cause.cause in ENDED_ON_PURPOSE
    is_read = not attempt.end.awaits_log or now - attempt.end.noticed_at >= LOG_WITHIN
    return attempt if is_read and not is_planned else None
