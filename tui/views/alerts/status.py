"""An alert in short texts, the sender of notifications, and the alerts of the run, job, node or disk of a row. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

from trainmon.lib import Instant, clean
from trainmon.model import SEVERITIES, Alert, Channel, Delivery, Leadership, Severity, Silence, State
from tui.style import CRIT, DONE, DOT, PAUSED, WAITING, WARN, Span, calm_age

SIGNS: Mapping[Severity, tuple[str, str, str]] = {
    "critical": (CRIT, "CRIT", "crit"),
    "warning": (WARN, "WARN", "warn"),
    "info": (DOT, "INFO", "accent"),
}
"""Of each severity its symbol, its word and its style."""

AlertStatus = Literal["open", "recovering", "acknowledged", "muted", "inhibited", "pending", "over"]
STATUSES: tuple[AlertStatus, ...] = ("open", "recovering", "acknowledged", "muted", "inhibited", "pending", "over")
"""What a person has to do, the most urgent first. `open` is firing and not acknowledged; `recovering`: the condition
is false, and the alert resolves if it stays false."""


def status_of(alert: Alert, now: Instant) -> AlertStatus:
    """What a person has to do. An acknowledged event is over."""
    statuses: tuple[tuple[bool, AlertStatus], ...] = (
        (not alert.is_open or (alert.event and alert.acknowledged_by is not None), "over"),
        (not alert.is_firing, "pending"),
        (alert.inhibited_by is not None, "inhibited"),
        (is_muted(alert, now), "muted"),
        (alert.acknowledged_by is not None, "acknowledged"),
        (alert.phase == "firing", "open"),
    )
    return next((name for applies, name in statuses if applies), "recovering")


def is_muted(alert: Alert, now: Instant) -> bool:
    return alert.muted_until is not None and alert.muted_until > now


def urgent(alerts: Iterable[Alert], now: Instant) -> list[Alert]:
    """The alerts that need a person now: the most severe first, then the oldest."""
    found = [one for one in alerts if one.severity != "info" and status_of(one, now) == "open"]
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.fired_at or one.since, one.id))


_last: list[tuple[Mapping[str, Alert], Instant, tuple[Alert, ...]]] = [({}, -1.0, ())]
"""Alerts, time and result of the last call: the header, the strip and four panes need it in one paint."""


def most_urgent(state: State) -> tuple[Alert, ...]:
    """The urgent alerts of a State; computed once per State."""
    if _last[0][0] is not state.alerts or _last[0][1] != state.at:
        _last[0] = (state.alerts, state.at, tuple(urgent(state.alerts.values(), state.at)))
    return _last[0][2]


def sign(alert: Alert, now: Instant) -> Span:
    """Its symbol. Resolved, recovering and pending alerts have their own."""
    symbol, _, style = SIGNS[alert.severity]
    if alert.phase == "resolved":
        return Span(DONE, "dim" if alert.event or alert.ended not in (None, "over") else "ok")
    if alert.phase == "pending":
        return Span(WAITING, "dim")
    return Span(PAUSED, style) if alert.phase == "recovering" else Span(symbol, severity(alert, now).style)


def severity(alert: Alert, now: Instant) -> Span:
    """`CRIT`: the severity as a word."""
    _, word, style = SIGNS[alert.severity]
    return Span(word, style if status_of(alert, now) == "open" else "dim")


# ---- deliveries ------------------------------------------------------------------------------------------------------

DELIVERY: Mapping[str, tuple[str, str]] = {
    "dead": ("dead", "crit"),
    "retrying": ("retrying", "warn"),
    "waiting": ("queued", ""),
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


# ---- the sender ------------------------------------------------------------------------------------------------------

STUCK_AFTER = 60.0
"""A sender whose loop has not run for this long counts as stopped."""


def sender_text(leader: Leadership, now: Instant) -> Span:
    """`sent here`, `bastion 9s ok`, `not sent`: which program sends notifications, and whether its loop runs."""
    if leader.holder == "daemon" and leader.at is None:
        return Span(clean(f"asking {leader.where}", 32))
    if leader.holder == "nobody":
        return Span("not sent", "warn")
    is_here = leader.holder == "us"
    name = clean("here" if is_here else leader.where or leader.holder, 24)
    passed = 0.0 if leader.at is None else max(0.0, now - leader.at)
    if passed >= STUCK_AFTER:
        return Span(f"{name} silent {calm_age(passed)}", "crit")
    if is_here:
        return Span("sent here!", "warn") if leader.problem else Span("sent here")
    age = "" if leader.at is None else f" {calm_age(passed - passed % 5)}"
    return Span(f"{name}{age} {'!' if leader.problem else 'ok'}", "warn" if leader.problem else "")


def sender(state: State) -> Span:
    """The sender of a State. Without a channel the leader sends nothing."""
    found = sender_text(state.leadership, state.at)
    if has_no_channel(state) and not found.style:
        return Span("no channel", "warn" if urgent_counts(state) else "")
    return found


def has_no_channel(state: State) -> bool:
    """Whether the leader has no channel and sends nothing. Another program's channels come with its note."""
    leader = state.leadership
    return not state.channels and (leader.holder == "us" or (leader.holder == "other" and leader.at is not None))


def broken_channels(channels: Iterable[Channel]) -> list[Channel]:
    """The broken channels."""
    return [one for one in channels if one.state == "broken"]


ONLY_SHOWS = "this program only shows alerts and rings the bell"


def sender_sentence(state: State) -> str:
    """The sender and its channels in a sentence."""
    leader, names = state.leadership, [f"{one.name} ({one.type})" for one in state.channels.values()]
    by = f" by {', '.join(names)}" if names else ""
    who = "this program" if leader.holder == "us" else f"the leader ({leader.where})"
    texts = {
        "nobody": "No notifications are sent. Alerts are only shown here",
        "us": f"This program sends notifications{by}",
        "other": f"Another program on this machine ({leader.where}) sends notifications{by}",
        "daemon": f"The daemon on {leader.where} sends notifications{by}; {ONLY_SHOWS}",
    }
    is_silent = has_no_channel(state)
    text = f"No notifications are sent: {who} has no [[notify]] in its config" if is_silent else texts[leader.holder]
    return clean(text + (f". {leader.problem}" if leader.problem else ""), 400)


# ---- silences ------------------------------------------------------------------------------------------------------


def silence_text(silence: Silence) -> str:
    """`rule gpu-hot on gpu:gpu-003/5`: what a silence matches."""
    parts = (("on", silence.subject), ("of run", silence.run), ("on node", silence.node))
    rule = f"rule {silence.rule}" if silence.rule else "everything"
    return clean(" ".join([rule, *(f"{word} {name}" for word, name in parts if name)]), 200)


def silences(state: State) -> list[Silence]:
    """The active silences, by their end."""
    found = [one for one in state.silences.values() if one.ended_at is None and one.until > state.at]
    return sorted(found, key=lambda one: (one.until, one.id))


def matches(silence: Silence, alert: Alert) -> bool:
    """Whether every part of the silence matches the alert."""
    parts = ((silence.rule, alert.rule), (silence.subject, alert.subject), (silence.run, alert.run),
             (silence.node, alert.node))  # fmt: skip
    return all(wanted in (None, own) for wanted, own in parts)


# ---- counts ----------------------------------------------------------------------------------------------------------


def urgent_counts(state: State) -> tuple[Span, ...]:
    """`2 CRIT`, `1 WARN`: the number of urgent alerts by severity."""
    found = most_urgent(state)
    counts = [(level, sum(one.severity == level for one in found)) for level in SEVERITIES[:2]]
    return tuple(Span(f"{number} {SIGNS[level][1]}", SIGNS[level][2]) for level, number in counts if number)


def pending_count(state: State) -> tuple[Span, ...]:
    """`1 pending`: the number of alerts whose condition has begun, and that are not sent yet."""
    found = [one for one in state.alerts.values() if one.severity != "info" and one.phase == "pending"]
    number = sum(not is_muted(one, state.at) for one in found)
    return (Span(f"{number} pending", "warn"),) if number else ()


def open_counts(state: State) -> str:
    """`2 critical  1 warning  3 acknowledged`: all open alerts, for a title."""
    open_ones = [(one.severity, status_of(one, state.at)) for one in state.alerts.values()]
    counts = Counter[str](level if stands == "open" else stands for level, stands in open_ones if stands != "over")
    return "  ".join(f"{counts[name]} {name}" for name in (*SEVERITIES, *STATUSES[1:-1]) if counts[name]) or "none"


# ---- alerts of rows --------------------------------------------------------------------------------------------------

TAKEN = ("open", "recovering", "acknowledged", "muted")
"""Alerts that a person may acknowledge or mute from a row: neither inhibited nor pending ones."""


def disk_of(alert: Alert) -> str | None:
    """The key of the disk that an alert is about."""
    return alert.subject.removeprefix("disk:").partition(" ")[0] if alert.subject.startswith("disk:") else None


def alerts_about(
    state: State, *, runs: Collection[str] = (), nodes: Collection[str] = (), disks: Collection[str] = ()
) -> tuple[str, ...]:
    """The ids of the firing alerts of these runs, nodes and disks (`login1:/tmp`), the worst first. Acknowledged and
    muted ones are among them."""
    found = [
        one
        for one in state.alerts.values()
        if one.severity != "info"
        and status_of(one, state.at) in TAKEN
        and (one.run in runs or one.node in nodes or disk_of(one) in disks)
    ]
    first = {one.id: rank for rank, one in enumerate(urgent(found, state.at))}
    return tuple(one.id for one in sorted(found, key=lambda one: (first.get(one.id, len(first)), one.since, one.id)))


def alerts_about_subjects(state: State, subjects: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The same of the subjects of rows: runs, jobs (by their run) and nodes."""
    jobs = {name for kind, name in subjects if kind == "job"}
    runs = {name for kind, name in subjects if kind == "run"} | {n for n, run in state.runs.items() if run.job in jobs}
    return alerts_about(state, runs=runs, nodes={name for kind, name in subjects if kind == "node"})
