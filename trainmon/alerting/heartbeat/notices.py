"""What is told when nothing is wrong: that it watches, that it goes on, that it ends, and the test of the way. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.heartbeat import report as heartbeat
from trainmon.alerting.pipeline import HeartbeatSpec, Routing, Token, begun
from trainmon.alerting.rules import TEST, ago
from trainmon.lib import Instant, Seconds, counted
from trainmon.model import Alert, Finding, Notice, State

START_AFTER: Seconds = 20.0
"""So long after the start it is told: by then most of what is watched has answered, or has not."""

START_AGAIN: Seconds = 600.0
"""A program that is started again and again says so once."""

WORTH: Seconds = 3_600.0
"""After that nobody wants to hear that a program started."""

HEARTBEAT, START = "heartbeat", "start"


class Bulletins(NamedTuple):
    """The notices that are due, and what is to be remembered of them."""

    notices: tuple[Notice, ...] = ()
    memory: Mapping[str, str] = {}


def remembered(memory: Mapping[str, str], key: str, now: Instant) -> Instant | None:
    """When something was told last; a clock that was set back makes it now at the latest."""
    try:
        return min(now, float(memory[key]))
    except (KeyError, ValueError):
        return None


def ahead(memory: Mapping[str, str], now: Instant) -> Mapping[str, str]:
    """What was told by a clock that was ahead was told now: else nothing would be told until then."""
    known = {key: remembered(memory, key, float("inf")) for key in (HEARTBEAT, START, TEST)}
    return {key: str(now) for key, at in known.items() if at is not None and at > now}


def heartbeat_channels(routing: Routing) -> tuple[str, ...]:
    wanting = (route for route in routing.routes if route.heartbeat and not route.fallback and not route.after)
    return tuple(route.channel for route in wanting)


def sign_of_life(
    spec: HeartbeatSpec, routing: Routing, state: State, memory: Mapping[str, str], now: Instant
) -> Bulletins:
    """The heartbeat, when it is due; the first a whole period after the first start."""
    if spec.every is None:
        return Bulletins()
    last = remembered(memory, HEARTBEAT, now)
    if last is not None and now - last < spec.every:
        return Bulletins()
    said = {HEARTBEAT: str(now)}
    channels = heartbeat_channels(routing)
    if last is None or not channels:
        return Bulletins(memory=said)
    if is_blank(state, now):
        return Bulletins()
    title, lines = _composed(state, now)
    lines = (*lines, f"told by {_program(spec)}") if spec.host else lines
    notice = Notice(
        key=f"heartbeat-{int(last)}",
        kind="heartbeat",
        reason=f"the regular sign of life, every {ago(spec.every)}",
        severity="info",
        at=now,
        channels=channels,
        title=title,
        lines=tuple(lines),
        expires_at=now + spec.every,
    )
    return Bulletins((notice,), said)


def _program(spec: HeartbeatSpec) -> str:
    return f"trainmon-tui on {spec.host}" if spec.host else "trainmon-tui"


def _composed(state: State, now: Instant) -> tuple[str, Sequence[str]]:
    try:
        return heartbeat.compose(state, now, tuple(state.alerts.values()))
    except Exception as error:  # it must cost neither the alerts of this look nor the sign of life itself
        why = type(error).__name__
        return "trainmon-tui watches", (
            f"what there is to say cannot be put together ({why}): a fault of this program",
        )


def is_blank(state: State, now: Instant) -> bool:
    """Whether it is too early to say how things are: after a start, or a sleep, not all has answered yet."""
    since = max(state.started_at, state.woke_at or 0.0)
    is_early = 0.0 <= now - since < START_AFTER
    return is_early and (not state.sources or any(source.health == "late" for source in state.sources.values()))


def beginning(
    spec: HeartbeatSpec, routing: Routing, state: State, memory: Mapping[str, str], unseen: Seconds | None, now: Instant
) -> Bulletins | None:
    """That it watches from now on; None while it is too early to say what. `unseen`: how long nobody looked."""
    last = remembered(memory, START, now)
    channels = heartbeat_channels(routing)
    if not spec.start or not channels or (last is not None and now - last < START_AGAIN):
        return Bulletins()
    if now - state.started_at < START_AFTER:
        return None
    notice = Notice(
        key=f"start-{int(state.started_at)}",
        kind="start",
        reason="it has started",
        severity="info",
        at=now,
        channels=channels,
        title=f"{_program(spec)} watches from now on",
        lines=_watched(state, routing, spec, unseen),
        expires_at=now + WORTH,
    )
    return Bulletins((notice,), {START: str(now)})


def goodbye(spec: HeartbeatSpec, routing: Routing, state: State, why: str, now: Instant) -> Notice | None:
    """That nobody watches from now on."""
    channels = heartbeat_channels(routing)
    if not channels:
        return None
    firing = sum(alert.is_firing for alert in state.alerts.values())
    return Notice(
        key=f"goodbye-{int(state.started_at)}",
        kind="goodbye",
        reason=why,
        severity="info",
        at=now,
        channels=channels,
        title=f"{_program(spec)} watches no more",
        lines=(f"it ends: {why}", f"{counted(firing, 'alert')} firing now; nobody looks until it is started again"),
        expires_at=now + WORTH,
    )


def test_is_due(spec: HeartbeatSpec, memory: Mapping[str, str], now: Instant) -> bool | None:
    """Whether the regular test is due; None when it begins to be counted from now."""
    if spec.test_every is None:
        return False
    last = remembered(memory, TEST, now)
    return None if last is None else now - last >= spec.test_every


def tested(alerts: Mapping[str, Alert], now: Instant, token: Token) -> dict[str, Alert]:
    """A new test message that asks to be acknowledged; the one before is over."""
    changed = {
        alert.id: replace(alert, phase="resolved", resolved_at=now, ended="asked anew")
        for alert in alerts.values()
        if alert.rule == TEST and alert.is_open
    }
    finding = Finding(
        rule=TEST,
        subject="self",
        severity="info",
        summary="this is a test of the way to you: please acknowledge it",
        advice="press the button of this message, or a in the pane Alerts, or: trainmon-tui ack with the alert's id",
    )
    new = replace(begun(finding, now, alerts, token), phase="firing", fired_at=now)
    return changed | {new.id: new}


def answered(alerts: Mapping[str, Alert], now: Instant) -> dict[str, Alert]:
    """The test messages that somebody has acknowledged are over."""
    return {
        alert.id: replace(alert, phase="resolved", resolved_at=now, ended="answered")
        for alert in alerts.values()
        if alert.rule == TEST and alert.is_open and alert.acknowledged_by is not None
    }


def _watched(state: State, routing: Routing, spec: HeartbeatSpec, unseen: Seconds | None) -> tuple[str, ...]:
    answering = sum(source.health == "ok" for source in state.sources.values())
    wanted = sum(source.health != "off" for source in state.sources.values())
    lines = [
        f"{counted(len(state.runs), 'run')}, {counted(len(state.nodes), 'node')}, "
        f"{counted(len(state.disks), 'disk')}; {answering} of {counted(wanted, 'source')} answering"
    ]
    if unseen is not None and unseen >= START_AGAIN:
        lines.append(f"nobody had looked for {ago(unseen)}")
    if len(routing.routes) == 1:
        lines.append("this is the only channel: if it fails, nothing reaches you; add a second [[notify]]")
    if spec.switch is False:
        lines.append("no dead-man's switch: if this machine fails, nobody tells you; set ping under [heartbeat]")
    return tuple(lines)
