"""Which channel is told of which alert, and why now: every notice has a reason that can be said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import NOT_LOOKED_FOR, NOT_WATCHED, OWED
from trainmon.alerting.rules import CHANNEL, TEST, ago
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, NoticeKind, Route, Silence, is_worse

HOUR: Seconds = 3_600.0

WORSE_AGAIN: Seconds = 1_800.0
"""One that was critical, got better and is critical again is told so after half an hour, not each time."""

COMPANY: Seconds = 10.0
COMPANY_SHARE = 0.05
"""What has waited for its hold may wait a twentieth of it more, at most 10 s, for others of its group."""

OVER_WAITS: Seconds = 3.0
"""That something is over is less urgent: eight GPUs recover within it."""

WORSE_MAY_COME: Seconds = 30.0
"""An alert that has waited for its hold waits so long at most for one that may hide it, and is still pending."""


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts reach people."""

    routes: tuple[Route, ...] = ()
    """A route a channel, in the order of the config."""
    repeat: Seconds = 4 * HOUR
    """A critical alert that nobody has acknowledged is told again so often (Alertmanager's repeat_interval)."""
    group_wait: Seconds = 0.5
    """How long a new alert waits for others of its group before it is told; at most a second."""
    windows: tuple[Silence, ...] = ()
    """The maintenance windows of the config: from `made_at` to `until`."""


class HeartbeatSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is told when nothing is wrong."""

    every: Seconds | None = 4 * HOUR
    """Between two heartbeats; null: none."""
    test_every: Seconds | None = 7 * 24 * HOUR
    """Between two test messages that ask to be acknowledged; null: none."""
    start: bool = True
    """Whether it is told that this program begins to watch, and that it ends."""
    switch: bool | None = None
    """Whether a dead-man's switch outside is fed; null where that is not known here."""
    host: str = ""
    """The machine that watches: of several daemons a person must know which one speaks."""


class Due(NamedTuple):
    """One alert that is to be told: as what, why, and to whom."""

    alert: Alert
    kind: NoticeKind
    reason: str
    channels: tuple[str, ...]
    ripe_at: Instant
    """From then on; until then it waits for others of its group."""


def due(alert: Alert, routing: Routing, now: Instant, may_be_hidden: bool = False) -> Due | None:
    """What is to be told of an alert now; None when that is nothing."""
    if not alert.is_open:
        return _missed(alert, routing, now) or _over(alert, routing, now)
    if alert.flapping and alert.is_firing and alert.muted_until is None and alert.inhibited_by is None:
        begun = None if alert.told_on else flaps(alert, routing, now)
        return begun or (None if _is_taken(alert) else _escalated(alert, routing, now))
    if not alert.is_firing or unheard(alert) is not None:
        return None
    if alert.told is None:
        if may_be_hidden and now - _fired(alert) < WORSE_MAY_COME and _waited(alert) > 0:
            return None
        return _first(alert, routing) or (None if _is_taken(alert) else _escalated(alert, routing, now))
    if is_worse(alert.severity, alert.told):
        return _worse(alert, routing, now) or (None if _is_taken(alert) else _escalated(alert, routing, now))
    if _is_taken(alert) or alert.phase == "recovering":
        return None
    return _escalated(alert, routing, now) or _repeated(alert, routing, now)


def unheard(alert: Alert) -> str | None:
    """Why an alert that fires is told to no one, in words; None when it may be told."""
    if alert.muted_until is not None:
        return "muted" if not alert.muted_why else f"muted: {alert.muted_why}"
    if alert.inhibited_by is not None:
        return f"hidden by {alert.inhibited_by}"
    return "flapping" if alert.flapping else None


def channels_for(alert: Alert, routing: Routing, later: bool = False) -> tuple[str, ...]:
    """The channels that are told of an alert at once, or those that are told when nobody acknowledges it."""
    if alert.rule == TEST:
        return () if later else tuple(route.channel for route in routing.routes if not route.fallback)
    if alert.subject.startswith(CHANNEL) and alert.severity != "critical" and not later:
        return _other_channels(alert, routing)
    return tuple(route.channel for route in routing.routes if _wants(route, alert) and (route.after > 0) == later)


def _other_channels(alert: Alert, routing: Routing) -> tuple[str, ...]:
    """That a channel fails is told by others: by the fallbacks, and by whoever is told of such; without a fallback by
    every other channel, however little else it is told."""
    others = [route for route in routing.routes if route.channel != alert.subject.removeprefix(CHANNEL)]
    if any(route.fallback for route in others):
        others = [route for route in others if route.fallback or (_wants(route, alert) and not route.after)]
    return tuple(route.channel for route in others)


def told(due: Due, now: Instant) -> Alert:
    """The alert after its notice is written."""
    alert = replace(due.alert, told_at=now, notices=due.alert.notices + 1)
    if due.kind == "resolve":
        return replace(alert, told_on=())
    told_on = tuple(dict.fromkeys((*alert.told_on, *due.channels)))
    if not alert.is_open:
        told_on = told_on if due.kind == "flapping" else alert.told_on
        return replace(alert, told=alert.severity, first_told_at=now, told_on=told_on)
    first = now if alert.first_told_at is None else alert.first_told_at
    alert = replace(alert, told_on=told_on, first_told_at=first)
    match due.kind:
        case "repeat":
            return replace(alert, repeats=alert.repeats + 1)
        case "escalate":
            escalated = alert.escalated + len(due.channels)
            is_news = alert.told is None or is_worse(alert.severity, alert.told)
            return replace(alert, escalated=escalated, told=alert.severity if is_news else alert.told)
        case "flapping" | "acknowledged":
            return alert
    return replace(alert, told=alert.severity)


def sunk(alert: Alert, now: Instant) -> Alert:
    """An alert that has long been less bad than was told: should it get as bad again, that is news."""
    if alert.told is None or alert.told_at is None or not is_worse(alert.told, alert.severity):
        return alert
    return replace(alert, told=alert.severity) if now - alert.told_at >= WORSE_AGAIN else alert


def unmuted(alert: Alert) -> Alert:
    """An alert whose mute has ended: if it still fires, and nobody has taken it, it is told (again)."""
    if alert.phase == "recovering":
        return replace(alert, told=alert.told or alert.severity)
    if not alert.is_firing or alert.event:
        return alert
    if alert.acknowledged_by is not None:
        return replace(alert, told=alert.told or alert.severity)
    return replace(alert, told=None, first_told_at=None)


def acknowledged(alert: Alert, routing: Routing, via: str, now: Instant) -> Due | None:
    """That somebody has taken it: told where others may be getting up for it, and to a phone that asked for it."""
    channels = _still_there(alert, routing, fallbacks=True)
    if not channels or (len(channels) == 1 and via != "phone"):
        return None
    return Due(alert, "acknowledged", f"acknowledged by {alert.acknowledged_by}", channels, now)


def flaps(alert: Alert, routing: Routing, now: Instant) -> Due | None:
    """That it comes and goes: told once, in place of each time."""
    channels = _still_there(alert, routing) or channels_for(alert, routing)
    if not channels or alert.muted_until is not None or alert.inhibited_by is not None:
        return None
    return Due(alert, "flapping", "it comes and goes: nothing more of it is told until it is stable", channels, now)


def _still_there(alert: Alert, routing: Routing, fallbacks: bool = False) -> tuple[str, ...]:
    """The channels that were told of it, without those that the config has no more. Of news the fallbacks hear only
    what others cannot deliver."""
    known = {route.channel for route in routing.routes if fallbacks or not route.fallback}
    return tuple(name for name in alert.told_on if name in known)


def _joined(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _fired(alert: Alert) -> Instant:
    return alert.found_at if alert.fired_at is None else alert.fired_at


def _waited(alert: Alert) -> Seconds:
    """How long it waited for its hold."""
    return 0.0 if alert.pending_since is None else max(0.0, _fired(alert) - alert.pending_since)


def _is_taken(alert: Alert) -> bool:
    """Whether nobody need take it any more, or ever."""
    return alert.event or alert.rule == TEST or alert.acknowledged_by is not None


# ---- one by one ------------------------------------------------------------------------------------------------------


def _wants(route: Route, alert: Alert) -> bool:
    return (
        not route.fallback
        and not is_worse(route.severity, alert.severity)
        and (not route.runs or alert.run is None or alert.run in route.runs)
        and (not route.rules or alert.rule in route.rules)
    )


def _first(alert: Alert, routing: Routing) -> Due | None:
    channels = channels_for(alert, routing)
    if not channels:
        return None
    fired = _fired(alert)
    ripe = fired + min(1.0, routing.group_wait) + min(COMPANY, COMPANY_SHARE * _waited(alert))
    if alert.rule == TEST:
        return Due(alert, "test", "the regular test of the way to you", channels, fired)
    if alert.event:
        return Due(alert, "event", "happened", channels, ripe)
    if alert.told_on:
        reason = "muted or flapping no more, and it still fires"
        return Due(alert, "fire", reason, _joined(channels, _still_there(alert, routing)), ripe)
    return Due(alert, "fire", "fired", channels, ripe)


def _worse(alert: Alert, routing: Routing, now: Instant) -> Due | None:
    channels = _joined(channels_for(alert, routing), _still_there(alert, routing))
    reason = f"got worse: {alert.severity} now, it was {alert.told}"
    return Due(alert, "worse", reason, channels, now) if channels else None


def _escalated(alert: Alert, routing: Routing, now: Instant) -> Due | None:
    begin = alert.first_told_at or alert.fired_at or now
    channels = tuple(
        route.channel
        for route in routing.routes
        if route.after > 0
        and now - begin >= route.after
        and _wants(route, alert)
        and route.channel not in alert.told_on
    )
    if not channels:
        return None
    return Due(alert, "escalate", f"nobody has acknowledged it for {ago(now - begin)}", channels, now)


def _repeated(alert: Alert, routing: Routing, now: Instant) -> Due | None:
    if alert.severity != "critical" or alert.told_at is None or now - alert.told_at < routing.repeat:
        return None
    fired = alert.since if alert.fired_at is None else alert.fired_at
    known = "still firing" if alert.data == "ok" else "not known to be over"
    reason = f"{known} after {ago(now - fired)}, nobody has acknowledged it"
    channels = _joined(_still_there(alert, routing), channels_for(alert, routing))
    return Due(alert, "repeat", reason, channels, now) if channels else None


def _missed(alert: Alert, routing: Routing, now: Instant) -> Due | None:
    """One that was over before it was its turn, in a flood or around a crash: it is told all the same."""
    over = alert.resolved_at
    if alert.told is not None or alert.fired_at is None or over is None or now - over >= OWED or alert.rule == TEST:
        return None
    channels = channels_for(alert, routing)
    if not channels:
        return None
    return Due(alert, "event" if alert.event else "fire", "fired, and is over by now", channels, now)


def _over(alert: Alert, routing: Routing, now: Instant) -> Due | None:
    """Told where it was told that it began, and nowhere else."""
    if not alert.told_on or alert.event or alert.rule == TEST or alert.muted_until is not None or alert.flapping:
        return None
    deaf = {route.channel for route in routing.routes if not route.resolved}
    channels = tuple(name for name in _still_there(alert, routing, fallbacks=True) if name not in deaf)
    if not channels:
        return None
    over = now if alert.resolved_at is None else alert.resolved_at
    reasons: Mapping[str | None, str] = {
        NOT_WATCHED: "no longer watched (it left the config, or its job ended), which does not mean that it is well",
        NOT_LOOKED_FOR: "its rule is switched off: it is no longer looked for, which does not mean that it is well",
    }
    return Due(alert, "resolve", reasons.get(alert.ended, "over"), channels, over + OVER_WAITS)
