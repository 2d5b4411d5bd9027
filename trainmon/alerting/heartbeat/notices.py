"""Notifications without an alert: start, heartbeat, stop, and the test of the channels. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.heartbeat import report
from trainmon.alerting.pipeline import HeartbeatSpec, Routing, Token, new_alert
from trainmon.alerting.rules import TEST, ago
from trainmon.lib import Instant, Seconds, counted
from trainmon.model import Alert, Finding, Notice, State

START_AFTER: Seconds = 20.0
"""The start is notified after this time: by then most sources have answered, or failed."""

START_AGAIN: Seconds = 600.0
"""Starts within this time of the last one are not notified again."""

EXPIRES_AFTER: Seconds = 3_600.0
"""A start or stop that could not be sent within this time is dropped."""

HEARTBEAT, START = "heartbeat", "start"


class HeartbeatNotices(NamedTuple):
    """Notifications that are due, and the memory of when they were sent."""

    notices: tuple[Notice, ...] = ()
    memory: Mapping[str, str] = {}


def remembered(memory: Mapping[str, str], key: str, now: Instant) -> Instant | None:
    """When something was last notified; at the latest now, even if the clock was set back."""
    try:
        return min(now, float(memory[key]))
    except (KeyError, ValueError):
        return None


def not_in_the_future(memory: Mapping[str, str], now: Instant) -> Mapping[str, str]:
    """The memory of future times, set to now: otherwise nothing would be notified until then."""
    known = {key: remembered(memory, key, float("inf")) for key in (HEARTBEAT, START, TEST)}
    return {key: str(now) for key, at in known.items() if at is not None and at > now}


def heartbeat_channels(routing: Routing) -> tuple[str, ...]:
    return tuple(one.channel for one in routing.routes if one.heartbeat and not one.fallback and not one.after)


def heartbeat(
    spec: HeartbeatSpec, routing: Routing, state: State, memory: Mapping[str, str], now: Instant
) -> HeartbeatNotices:
    """The heartbeat, if it is due. The first is due one period after the first start."""
    last = remembered(memory, HEARTBEAT, now)
    if spec.every is None or (last is not None and now - last < spec.every):
        return HeartbeatNotices()
    memory, channels = {HEARTBEAT: str(now)}, heartbeat_channels(routing)
    if last is None or not channels:
        return HeartbeatNotices(memory=memory)
    # After a start or a suspend, sources first need time to answer.
    passed = now - max(state.started_at, state.clock_jumped_at or 0.0)
    has_late = not state.sources or any(source.health == "late" for source in state.sources.values())
    if 0.0 <= passed < START_AFTER and has_late:
        return HeartbeatNotices()
    try:
        title, lines = report.compose(state, now, tuple(state.alerts.values()))
    except Exception as error:  # it must cost neither the alerts of this evaluation nor the heartbeat itself
        title = "trainmon-tui watches"
        lines = (f"the report cannot be made ({type(error).__name__}): a fault of this program",)
    if spec.host:
        lines = (*lines, f"sent by {_program(spec)}")
    notice = Notice(
        key=f"heartbeat-{int(last)}",
        kind="heartbeat",
        reason=f"the regular heartbeat, every {ago(spec.every)}",
        severity="info",
        at=now,
        channels=channels,
        title=title,
        lines=lines,
        expires_at=now + spec.every,
    )
    return HeartbeatNotices((notice,), memory)


def _program(spec: HeartbeatSpec) -> str:
    return f"trainmon-tui on {spec.host}" if spec.host else "trainmon-tui"


def started(
    spec: HeartbeatSpec, routing: Routing, state: State, memory: Mapping[str, str], outage: Seconds | None, now: Instant
) -> HeartbeatNotices | None:
    """The notification of a start; None while it is too early. `outage`: how long nothing was evaluated before."""
    last, channels = remembered(memory, START, now), heartbeat_channels(routing)
    if not spec.start or not channels or (last is not None and now - last < START_AGAIN):
        return HeartbeatNotices()
    if now - state.started_at < START_AFTER:
        return None
    notice = Notice(
        key=f"start-{int(state.started_at)}",
        kind="start",
        reason="it has started",
        severity="info",
        at=now,
        channels=channels,
        title=f"{_program(spec)} started",
        lines=_watched(state, routing, spec, outage),
        expires_at=now + EXPIRES_AFTER,
    )
    return HeartbeatNotices((notice,), {START: str(now)})


def stopped(spec: HeartbeatSpec, routing: Routing, state: State, why: str, now: Instant) -> Notice | None:
    """The notification of a stop."""
    firing, channels = sum(alert.is_firing for alert in state.alerts.values()), heartbeat_channels(routing)
    notice = Notice(
        key=f"goodbye-{int(state.started_at)}",
        kind="goodbye",
        reason=why,
        severity="info",
        at=now,
        channels=channels,
        title=f"{_program(spec)} stopped",
        lines=(f"it stops: {why}", f"{counted(firing, 'alert')} firing now; nothing is watched until it starts again"),
        expires_at=now + EXPIRES_AFTER,
    )
    return notice if channels else None


def test_is_due(spec: HeartbeatSpec, memory: Mapping[str, str], now: Instant) -> bool | None:
    """Whether the regular test is due; None if its period starts now."""
    last = remembered(memory, TEST, now)
    if spec.test_every is None:
        return False
    return None if last is None else now - last >= spec.test_every


def new_test(alerts: Mapping[str, Alert], now: Instant, token: Token) -> dict[str, Alert]:
    """A new test notification that asks for an acknowledgement. The test before ends."""
    changed = {
        alert.id: replace(alert, phase="resolved", resolved_at=now, ended="replaced by a new test")
        for alert in alerts.values()
        if alert.rule == TEST and alert.is_open
    }
    finding = Finding(
        rule=TEST,
        subject="self",
        severity="info",
        summary="this is a test of your notifications: please acknowledge it",
        advice="press the button of this message, or a in pane 5 (Alerts), or run trainmon-tui ack with the alert's id",
    )
    new = replace(new_alert(finding, now, alerts, token), phase="firing", fired_at=now)
    return changed | {new.id: new}


def acknowledged_tests(alerts: Mapping[str, Alert], now: Instant) -> dict[str, Alert]:
    """The tests that somebody acknowledged, as resolved."""
    return {
        alert.id: replace(alert, phase="resolved", resolved_at=now, ended="acknowledged")
        for alert in alerts.values()
        if alert.rule == TEST and alert.is_open and alert.acknowledged_by is not None
    }


def _watched(state: State, routing: Routing, spec: HeartbeatSpec, outage: Seconds | None) -> tuple[str, ...]:
    answering = sum(source.health == "ok" for source in state.sources.values())
    wanted = sum(source.health != "off" for source in state.sources.values())
    lines = [
        f"{counted(len(state.runs), 'run')}, {counted(len(state.nodes), 'node')}, "
        f"{counted(len(state.disks), 'disk')}; {answering} of {counted(wanted, 'source')} responding"
    ]
    if outage is not None and outage >= START_AGAIN:
        lines.append(f"nothing was watched for {ago(outage)} before")
    if len(routing.routes) == 1:
        lines.append("this is the only channel: if it fails, you get no notification; add a second [[notify]]")
    if spec.switch is False:
        lines.append("no dead-man's switch: if this machine fails, nothing notifies you; set ping under [heartbeat]")
    return tuple(lines)
