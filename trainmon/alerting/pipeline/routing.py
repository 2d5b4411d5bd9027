"""Routing: which channels are notified of an alert, and why now. Every notification has a reason. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import NOT_WATCHED, NOTIFY_END_WITHIN, RULE_OFF
from trainmon.alerting.pipeline.quiet import may_be_hidden_soon
from trainmon.alerting.rules import CHANNEL, TEST
from trainmon.lib import Instant, Seconds, ago
from trainmon.model import Alert, Delivery, NoticeKind, Route, Silence, is_worse

HOUR: Seconds = 3_600.0

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
    test_every: Seconds | None = 7 * 24 * HOUR
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
    if alert.flapping and alert.is_firing and alert.muted_until is None and alert.inhibited_by is None:
        return escalated
    if not alert.is_firing or quiet_because(alert) is not None:
        return None
    if alert.notified_as is None:
        fired = alert.found_at if alert.fired_at is None else alert.fired_at
        held_for = 0.0 if alert.pending_since is None else max(0.0, fired - alert.pending_since)
        if may_be_hidden and now - fired < INHIBIT_WAIT and held_for > 0:
            return None
        return _first(alert, routing, fired, held_for) or escalated
    if is_worse(alert.severity, alert.notified_as):
        channels = (*channels_for(alert, routing), *_still_configured(alert, routing))
        return (
            _due(alert, "worse", f"got worse: {alert.severity} now, it was {alert.notified_as}", channels, now)
            or escalated
        )
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
    kept = (delivery for delivery in due.alert.delivery if delivery.channel not in due.channels)
    new = (Delivery(channel=name, kind=due.kind, state="waiting", at=now) for name in due.channels)
    alert = replace(due.alert, notified_at=now, notices=due.alert.notices + 1, delivery=(*kept, *new))
    if due.kind == "cause":
        return alert
    if due.kind == "resolve":
        return replace(alert, notified_on=())
    notified_on = tuple(dict.fromkeys((*alert.notified_on, *due.channels)))
    if not alert.is_open:
        alert = replace(alert, notified_as=alert.severity, first_notified_at=now)
        is_flapping = due.kind == "flapping"
        return replace(alert, notified_on=notified_on, flapping_notified=True) if is_flapping else alert
    first = now if alert.first_notified_at is None else alert.first_notified_at
    alert = replace(alert, notified_on=notified_on, first_notified_at=first)
    match due.kind:
        case "flapping":
            return replace(alert, flapping_notified=True)
        case "repeat":
            return replace(alert, repeats=alert.repeats + 1)
        case "escalate":
            escalated = alert.escalated + len(due.channels)
            is_worst = alert.notified_as is None or is_worse(alert.severity, alert.notified_as)
            return replace(alert, escalated=escalated, notified_as=alert.severity if is_worst else alert.notified_as)
        case "acknowledged":
            return alert
    return replace(alert, notified_as=alert.severity)


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
    channels = _still_configured(alert, routing) or channels_for(alert, routing)
    return _due(alert, "flapping", "flapping: no more notifications until it is stable", channels, now)


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
    channels = (*_still_configured(alert, routing), *channels_for(alert, routing))
    return _due(alert, "repeat", f"{known} after {ago(now - fired)}, not acknowledged", channels, now)


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
