"""Heartbeats: reports while nothing is wrong, notifications of start and stop, tests, the self-check. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.episode import Token, new_alert
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import TEST, is_answering
from trainmon.analysis.checkpoints import last_checkpoint
from trainmon.lib import DAY, Instant, Seconds, ago, clean, counted, size
from trainmon.model import (
    ALIVE,
    SEVERITIES,
    Alert,
    Disk,
    Finding,
    Notice,
    Run,
    State,
    verdict_text,
)

# ---- notifications without an alert ----------------------------------------------------------------------------------

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
    memory: Mapping[str, Instant] = {}


def heartbeat_channels(routing: Routing) -> tuple[str, ...]:
    return tuple(one.channel for one in routing.routes if one.heartbeat and not one.fallback and not one.after)


def heartbeat(
    spec: HeartbeatSpec, routing: Routing, state: State, memory: Mapping[str, Instant], now: Instant
) -> HeartbeatNotices:
    """The heartbeat, if it is due. The first is due one period after the first start."""
    last = memory.get(HEARTBEAT)
    if spec.every is None or (last is not None and now - last < spec.every):
        return HeartbeatNotices()
    memory, channels = {HEARTBEAT: now}, heartbeat_channels(routing)
    if last is None or not channels:
        return HeartbeatNotices(memory=memory)
    # After a start or a suspend, sources first need time to answer.
    passed = now - max(state.started_at, state.clock_jumped_at or 0.0)
    has_late = not state.sources or any(source.health == "late" for source in state.sources.values())
    if 0.0 <= passed < START_AFTER and has_late:
        return HeartbeatNotices()
    try:
        title, lines = compose(state, now, tuple(state.alerts.values()))
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
    spec: HeartbeatSpec,
    routing: Routing,
    state: State,
    memory: Mapping[str, Instant],
    outage: Seconds | None,
    now: Instant,
) -> HeartbeatNotices | None:
    """The notification of a start; None while it is too early. `outage`: how long nothing was evaluated before."""
    last, channels = memory.get(START), heartbeat_channels(routing)
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
    return HeartbeatNotices((notice,), {START: now})


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
    lines = (
        f"{counted(len(state.runs), 'run')}, {counted(len(state.nodes), 'node')}, "
        f"{counted(len(state.disks), 'disk')}; {answering} of {counted(wanted, 'source')} responding",
        f"nothing was watched for {ago(outage)} before" if outage is not None and outage >= START_AGAIN else "",
        "this is the only channel: if it fails, you get no notification; add a second [[notify]]"
        if len(routing.routes) == 1
        else "",
        "no dead-man's switch: if this machine fails, nothing notifies you; set ping under [heartbeat]"
        if spec.switch is False
        else "",
    )
    return tuple(filter(None, lines))


# ---- the text of a heartbeat -----------------------------------------------------------------------------------------

DISKS = 3
"""The disks that a heartbeat names: those that are full first."""
ALERTS = 5
RUNS = 20


def compose(state: State, now: Instant, alerts: Sequence[Alert]) -> tuple[str, tuple[str, ...]]:
    """The title and the lines of a heartbeat."""
    firing = [alert for alert in alerts if alert.is_firing]
    firing.sort(key=lambda alert: (SEVERITIES.index(alert.severity), alert.since))
    runs = sorted(state.runs.values(), key=lambda run: run.verdict not in ALIVE)
    lines = [line for run in runs[:RUNS] for line in _run(run, now)]
    if runs[RUNS:]:
        lines.append(f"and {counted(len(runs) - RUNS, 'run')} more")
    lines += [*_disks(state, now), *_gpus(state), *_alerts(firing, now), *_silent_sources(state, now)]
    if len(runs) == 1:
        verdict = "alive" if runs[0].verdict in ALIVE else verdict_text(runs[0].verdict)
        title = ": ".join(filter(None, (f"{clean(runs[0].name, 60)} {verdict}", _step(runs[0]))))
    elif runs:
        verdicts = Counter("alive" if run.verdict in ALIVE else verdict_text(run.verdict) for run in runs)
        title = f"{counted(len(runs), 'run')}: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}"
    else:
        title = f"{counted(len(state.nodes), 'node')} watched, no run"
    return f"{title} · {counted(len(firing), 'alert')} open" if firing else title, tuple(lines)


def _run(run: Run, now: Instant) -> Iterator[str]:
    loss, at, eta_at = run.loss, run.progress.at, run.eta_at
    is_healthy, is_alive = run.verdict == "healthy", run.verdict in ALIVE
    why = f" ({clean(run.why, 120)})" if not is_healthy and run.why else ""
    yield f"{clean(run.name, 60)}: {'alive' if is_healthy else verdict_text(run.verdict)}{why}"
    facts = (
        _step(run),
        "" if loss is None else f"loss {loss:.4g}" if math.isfinite(loss) else "loss is NaN or infinite",
        _rate(run) if is_alive or run.verdict == "diverged" else "",
        f"done in {ago(eta_at - now)}" if eta_at is not None and eta_at > now else "",
    )
    if any(facts):
        yield f"  {', '.join(filter(None, facts))}"
    if at is not None and is_alive:
        yield f"  last step {ago(now - at)} ago"
    if run.checkpoints is not None:
        yield f"  last checkpoint: {last_checkpoint(run, run.checkpoints, now)}"


def _step(run: Run) -> str:
    if run.step is None:
        return ""
    share = f" of {run.target_step:,} ({run.step / run.target_step:.0%})" if run.target_step else ""
    return f"step {run.step:,}{share}"


def _rate(run: Run) -> str:
    progress = run.progress
    if progress.tokens_per_s is not None:
        return f"{progress.tokens_per_s:,.0f} tokens/s"
    if progress.samples_per_s is not None:
        return f"{progress.samples_per_s:,.4g} samples/s"
    seconds = progress.step_time_s if progress.step_time_s is not None else progress.cadence_s
    return f"{seconds:.3g}s per step" if seconds is not None else ""


def _disks(state: State, now: Instant) -> Iterator[str]:
    """The disks that are full first, by forecast and then by free share."""
    ordered = sorted(state.disks.values(), key=lambda disk: (_full_at(disk) or math.inf, _free_share(disk)))
    paths = Counter(disk.path for disk in ordered)
    for disk in ordered[:DISKS]:
        left, full_at = disk.left_bytes, _full_at(disk)
        is_one = paths[disk.path] == 1 and disk.state == "ok"
        name = clean(disk.path, 80) + ("" if is_one else f" on {clean(disk.host, 60)}")
        days = f"{max(0.0, (full_at - now) / DAY):,.1f} days left" if full_at is not None else "not filling"
        if disk.state != "ok" or left is None:
            yield f"disk {name}: {clean(disk.error or disk.state, 80)}"
        else:
            yield f"disk {name}: {days}, {size(left)} free ({_free_share(disk):.0%})"
    if ordered[DISKS:]:
        yield f"and {counted(len(ordered) - DISKS, 'disk')} with more free space"


def _full_at(disk: Disk) -> Instant | None:
    return min((at for at in (disk.full_at, disk.inodes_full_at) if at is not None), default=None)


def _free_share(disk: Disk) -> float:
    return disk.left_bytes / disk.total_bytes if disk.left_bytes is not None and disk.total_bytes else 1.0


def _gpus(state: State) -> Iterator[str]:
    nodes = state.nodes.values()
    expected = sum(len(node.gpus) if node.gpus_expected is None else node.gpus_expected for node in nodes)
    seen = [node for node in nodes if is_answering(state, f"node:{node.name}")]
    healthy = sum(gpu.state == "ok" for node in seen for gpu in node.gpus)
    silent = len(nodes) - len(seen)
    note = f", {counted(silent, 'node')} unreachable" if silent else ""
    if expected:
        yield f"GPUs: {healthy:,} of {expected:,} healthy on {counted(len(nodes), 'node')}{note}"


def _alerts(firing: Sequence[Alert], now: Instant) -> Iterator[str]:
    yield f"{counted(len(firing), 'alert')} open" if firing else "no alert is open"
    for alert in firing[:ALERTS]:
        taken = f", acknowledged by {clean(alert.acknowledged_by, 40)}" if alert.acknowledged_by else ""
        yield f"  {alert.severity}: {clean(alert.summary, 200)} (since {ago(now - alert.since)}{taken})"
    if firing[ALERTS:]:
        yield f"  and {len(firing) - ALERTS:,} more"


def _silent_sources(state: State, now: Instant) -> Iterator[str]:
    """The sources that do not answer: their data is old."""
    silent = [source for source in state.sources.values() if source.health in ("late", "down")]
    for source in silent[:ALERTS]:
        age = f" for {ago(now - source.answered_at)}" if source.answered_at is not None else ""
        why = f" ({clean(source.problem, 120)})" if source.problem else ""
        yield f"late{age}: {clean(source.name, 80)}{why}"
    if silent[ALERTS:]:
        yield f"and {counted(len(silent) - ALERTS, 'source')} more"


# ---- the self-check of the monitor -----------------------------------------------------------------------------------

EVALUATED_WITHIN: Seconds = 60.0
"""The rules are evaluated once a second."""

SILENT_AFTER: Seconds = 120.0
"""After a start or a lost network, the first source answers within this time."""

SENT_WITHIN: Seconds = 900.0
"""The longest pause between two tries of a channel is 5 minutes."""


def unwell(state: State, now: Instant) -> str | None:
    """Why the dead-man's switch must not be pinged, in a sentence; None if the monitor is healthy."""
    evaluated_at = state.started_at if state.evaluated_at is None else state.evaluated_at
    if now - evaluated_at > EVALUATED_WITHIN:
        return f"the rules have not been evaluated for {ago(now - evaluated_at)}"
    return (
        _silent(state, now)
        or _not_notifying(state, now)
        or (None if state.ledger is None else f"the ledger cannot be written: {state.ledger}")
    )


def _silent(state: State, now: Instant) -> str | None:
    wanted = [source for source in state.sources.values() if source.health != "off"]
    answered = (source.answered_at for source in wanted if source.answered_at is not None)
    since = max((state.started_at, state.clock_jumped_at or 0.0, *answered))
    if not wanted or any(source.health == "ok" for source in wanted) or now - since <= SILENT_AFTER:
        return None
    return f"0 of {counted(len(wanted), 'source')} responding for {ago(now - since)}"


def _not_notifying(state: State, now: Instant) -> str | None:
    channels = state.channels.values()
    if state.leadership.holder != "us":
        return None if now - state.started_at <= SILENT_AFTER else "another program sends the notifications"
    if channels and all(channel.state == "broken" for channel in channels):
        return "every channel refuses its notifications"
    for channel in channels:
        if channel.oldest_at is not None and now - channel.oldest_at > SENT_WITHIN:
            return f"a notification for {channel.name} has waited for {ago(now - channel.oldest_at)}"
    return None
