"""An alert in short texts: severity, standing, deliveries, acknowledgement; and who sends notifications. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

from trainmon.lib import Instant, clean, counted
from trainmon.model import SEVERITIES, Alert, Channel, Delivery, Leadership, Severity, Silence, State
from tui.style import CRIT, DONE, DOT, PAUSED, WAITING, WARN, Span, calm_age, duration

SIGNS: Mapping[Severity, tuple[str, str, str]] = {
    "critical": (CRIT, "CRIT", "crit"),
    "warning": (WARN, "WARN", "warn"),
    "info": (DOT, "INFO", "accent"),
}
"""Of each severity its symbol, its word and its style."""

Standing = Literal["open", "ending", "acknowledged", "muted", "hidden", "pending", "over"]
STANDINGS: tuple[Standing, ...] = ("open", "ending", "acknowledged", "muted", "hidden", "pending", "over")
"""What a person has to do, the most urgent first. `open` is firing and not acknowledged; `ending` is not found any
more and resolves if that lasts."""


def standing(alert: Alert, now: Instant) -> Standing:
    if not alert.is_open or is_seen(alert):
        return "over"
    if not alert.is_firing:
        return "pending"
    if alert.inhibited_by is not None:
        return "hidden"
    if is_muted(alert, now):
        return "muted"
    if alert.acknowledged_by is not None:
        return "acknowledged"
    return "open" if alert.phase == "firing" else "ending"


def is_seen(alert: Alert) -> bool:
    """Whether it is an event that somebody has acknowledged."""
    return alert.event and alert.acknowledged_by is not None


def is_muted(alert: Alert, now: Instant) -> bool:
    return alert.muted_until is not None and alert.muted_until > now


def urgent(alerts: Iterable[Alert], now: Instant) -> list[Alert]:
    """The alerts that need a person now: the most severe first, then the oldest."""
    found = [one for one in alerts if one.severity != "info" and standing(one, now) == "open"]
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.fired_at or one.since, one.id))


class _Cache:
    """The result of one State: the header, the strip and four panes need it in one paint."""

    alerts: Mapping[str, Alert] = {}
    at: Instant = -1.0
    found: tuple[Alert, ...] = ()


def most_urgent(state: State) -> tuple[Alert, ...]:
    """The urgent alerts of a State; computed once per State."""
    if _Cache.alerts is not state.alerts or _Cache.at != state.at:
        _Cache.alerts, _Cache.at = state.alerts, state.at
        _Cache.found = tuple(urgent(state.alerts.values(), state.at))
    return _Cache.found


def sign(alert: Alert, now: Instant) -> Span:
    """Its symbol. Resolved, recovering and pending alerts have their own."""
    symbol, _, style = SIGNS[alert.severity]
    if alert.phase == "resolved":
        return Span(DONE, "dim" if alert.event or alert.ended not in (None, "over") else "ok")
    if alert.phase == "recovering":
        return Span(PAUSED, style)
    if alert.phase == "pending":
        return Span(WAITING, "dim")
    return Span(symbol, style if standing(alert, now) == "open" else "dim")


def severity(alert: Alert, now: Instant) -> Span:
    """`CRIT`: the severity as a word."""
    _, word, style = SIGNS[alert.severity]
    return Span(word, style if standing(alert, now) == "open" else "dim")


# ---- deliveries ------------------------------------------------------------------------------------------------------

DELIVERY: Mapping[str, tuple[str, str]] = {
    "dead": ("dead", "crit"),
    "retrying": ("retrying", "warn"),
    "waiting": ("waits", ""),
    "sending": ("sending", ""),
    "sent": ("sent", "ok"),
    "merged": ("sent", "ok"),
    "stopped": ("not sent", "dim"),
}
"""The text and style of each delivery state, the worst first."""


def delivered(one: Delivery, now: Instant) -> Span:
    """`sent ntfy 14:02:11`; `sent ntfy Sep 21 14:02` after half a day. UTC, as in the header."""
    word, style = DELIVERY[one.state]
    time = datetime.fromtimestamp(one.at, UTC).strftime("%H:%M:%S" if now - one.at < 43_200 else "%b %d %H:%M")
    return Span(clean(f"{word} {one.channel} {time}", 80), style)


def worst_delivery_first(alert: Alert) -> list[Delivery]:
    order = list(DELIVERY)
    return sorted(alert.delivery, key=lambda one: (order.index(one.state), -one.at))


def remarks(alert: Alert, state: State) -> list[Span]:
    """Its remarks, the most important first: `ack ana`, `muted 43m`, `hidden by node-unreachable`."""
    now, found = state.at, list[Span]()
    if not alert.is_open:
        return [Span(clean(alert.ended or "over", 60), "dim")]
    if alert.phase == "pending":
        found.append(Span("pending", "dim"))
    if alert.inhibited_by is not None:
        hides = state.alerts.get(alert.inhibited_by)
        found.append(Span("hidden" if hides is None else clean(f"hidden by {hides.rule}", 60), "dim"))
    if is_muted(alert, now):
        found.append(Span(f"muted {duration((alert.muted_until or now) - now)}", "accent"))
    if alert.acknowledged_by is not None:
        found.append(Span(clean(f"ack {alert.acknowledged_by}", 40), "accent"))
    if alert.data != "ok":
        found.append(Span("stale data" if alert.data == "stale" else "data error", "warn"))
    if alert.phase == "recovering":
        found.append(Span("ending", "dim"))
    if alert.flapping:
        found.append(Span("flapping", "warn"))
    return found


# ---- the sender ------------------------------------------------------------------------------------------------------

STUCK_AFTER = 60.0
"""A sender whose loop has not run for this long counts as stopped."""


def sender_text(duty: Leadership, now: Instant) -> Span:
    """`here ok`, `bastion 9s ok`, `not sent`: which program sends notifications, and whether its loop runs."""
    if duty.holder == "daemon" and duty.at is None:
        return Span(clean(f"asking {duty.where}", 32))
    if duty.holder == "nobody":
        return Span("not sent", "warn")
    ours = duty.holder == "us"
    name = clean("here" if ours else duty.where or duty.holder, 24)
    passed = None if duty.at is None else max(0.0, now - duty.at)
    if passed is not None and passed >= STUCK_AFTER:
        return Span(f"{name} silent {calm_age(passed)}", "crit")
    age = "" if ours or passed is None else f" {calm_age(passed - passed % 5)}"
    return Span(f"{name}{age} {'!' if duty.words else 'ok'}", "warn" if duty.words else "")


def sender(state: State) -> Span:
    """The sender of a State. Without a channel in the config this program sends nothing."""
    found = sender_text(state.duty, state.at)
    if state.duty.holder == "us" and not state.channels and not found.style:
        return Span("no channel", "warn" if tally(state) else "")
    return found


def broken(channels: Iterable[Channel]) -> list[Channel]:
    """The broken channels."""
    return [one for one in channels if one.state == "broken"]


def sender_sentence(state: State) -> str:
    """The sender and its channels in a sentence."""
    duty, names = state.duty, [f"{one.name} ({one.type})" for one in state.channels.values()]
    by = f" by {', '.join(names)}" if names else ", but trainmon.toml has no [[notify]]"
    match duty.holder:
        case "nobody":
            text = "No notifications are sent; alerts are only shown here"
        case "us":
            text = f"This program sends notifications{by}"
        case "other":
            text = f"Another program on this machine ({duty.where}) sends notifications{by}"
        case "daemon":
            text = f"The daemon on {duty.where} sends notifications{by}; this program only shows alerts and rings"
    return clean(text + (f". {duty.words}" if duty.words else ""), 400)


# ---- silences ------------------------------------------------------------------------------------------------------


def matched(silence: Silence) -> str:
    """`rule gpu-hot on gpu:gpu-003/5`: what a silence matches."""
    parts = [f"rule {silence.rule}" if silence.rule else "everything"]
    parts += [f"on {silence.subject}"] if silence.subject else []
    parts += [f"of run {silence.run}"] if silence.run else []
    parts += [f"on node {silence.node}"] if silence.node else []
    return clean(" ".join(parts), 200)


def silences(state: State) -> list[Silence]:
    """The active silences, by their end."""
    now = state.at
    found = [one for one in state.silences.values() if one.ended_at is None and one.until > now]
    return sorted(found, key=lambda one: (one.until, one.id))


def matches(silence: Silence, alert: Alert) -> bool:
    """Whether every part of the silence matches the alert."""
    wanted = (silence.rule, silence.subject, silence.run, silence.node)
    there = (alert.rule, alert.subject, alert.run, alert.node)
    return all(want is None or want == have for want, have in zip(wanted, there, strict=True))


def tally(state: State) -> tuple[Span, ...]:
    """`2 CRIT`, `1 WARN`: the number of urgent alerts by severity."""
    found = most_urgent(state)
    counts = [(level, sum(one.severity == level for one in found)) for level in SEVERITIES[:2]]
    return tuple(Span(f"{number} {SIGNS[level][1]}", SIGNS[level][2]) for level, number in counts if number)


def summed(state: State) -> str:
    """`2 critical  1 warning  3 acknowledged`: all open alerts, for a title."""
    now = state.at
    stands = [(one.severity, at) for one in state.alerts.values() if (at := standing(one, now)) != "over"]
    bad, at_all = Counter(level for level, at in stands if at == "open"), Counter[str](at for _, at in stands)
    words = [f"{bad[level]} {level}" for level in SEVERITIES if bad[level]]
    words += [f"{at_all[name]} {name}" for name in STANDINGS[1:-1] if at_all[name]]
    return "  ".join(words) or (counted(len(stands), "alert") if stands else "none")
