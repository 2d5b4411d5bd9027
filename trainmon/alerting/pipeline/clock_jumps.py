"""Clock jumps and suspends: how they are detected, and what they change in State and alerts. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.episode import after_outage
from trainmon.alerting.rules import ago
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Finding, State

JUMP: Seconds = 10.0
"""The wall clock was set if it moved by more than this in addition to the time that passed. NTP slews by less."""

STANDSTILL: Seconds = 30.0
"""Evaluations run once a second. A longer pause than this means that the program or its machine was suspended."""

SETTLING: Seconds = 60.0
"""After a clock jump, ignore a source's old data for this long. A dead connection is detected and dialled again
within it."""


class Moment(NamedTuple):
    """One time by two clocks."""

    wall: Instant
    steady: Seconds


class Jump(NamedTuple):
    """A gap between two evaluations: a clock that was set, or a suspend."""

    outage: Seconds
    """How long nothing was evaluated, as far as is known."""
    shift: Seconds
    """How far the wall clock moved in addition to the time that passed. Negative: it was set back."""
    why: str


def find_jump(last: Moment | None, present: Moment) -> Jump | None:
    """The jump between two evaluations, if there was one. A suspend looks like a clock that was set forward, because
    the steady clock stands still meanwhile."""
    if last is None:
        return None
    passed = max(0.0, present.steady - last.steady)
    shift = present.wall - last.wall - passed
    if shift > JUMP:
        return Jump(passed + shift, shift, f"this program slept for {ago(shift)}, or its clock was set forward by that")
    if shift < -JUMP:
        return Jump(passed if passed > STANDSTILL else 0.0, shift, f"its clock was set back by {ago(-shift)}")
    if passed > STANDSTILL:
        return Jump(passed, 0.0, f"this program was suspended for {ago(passed)}")
    return None


def apply_jump(state: State, jump: Jump, now: Instant) -> State:
    """The State after a jump. Times before it are ignored for a minute, and every wait of an alert takes as long as
    without the jump."""
    if jump.shift < 0:
        state = not_in_the_future(state, now)
    alerts = {}
    for name, alert in state.alerts.items():
        moved = ["notified_at", "first_notified_at", "acknowledged_at"] if jump.shift else []
        if jump.shift < 0:
            moved += ["found_at", "fired_at", "resolved_at", "pending_since", "clear_since"]
            moved += [] if alert.event else ["since"]
        changes: dict[str, Any] = {
            field: at + jump.shift for field in moved if (at := getattr(alert, field)) is not None
        }
        shifted: Alert = replace(alert, **changes) if changes else alert
        alerts[name] = after_outage(shifted, jump.outage, now) if jump.outage else shifted
    return replace(state, clock_jumped_at=now, clock_jump_why=jump.why, alerts=alerts)


def is_trusted(state: State, finding: Finding, now: Instant) -> bool:
    """Whether a finding rests on data from after the last jump, or began after it. A finding by age alone waits until
    every source had time to answer."""
    jumped_at = state.clock_jumped_at
    if jumped_at is None or now - jumped_at >= SETTLING or (finding.since is not None and finding.since > jumped_at):
        return True
    return not finding.by_age and _have_answered(state, finding.sources, jumped_at)


def may_resolve(state: State, sources: Collection[str], now: Instant) -> bool:
    """Whether a missing finding means anything: all sources of the alert have answered since the last jump."""
    jumped_at = state.clock_jumped_at
    return (
        jumped_at is None
        or now - jumped_at >= SETTLING
        or (bool(sources) and _have_answered(state, sources, jumped_at))
    )


def _have_answered(state: State, names: Collection[str], since: Instant) -> bool:
    """A source that `not_in_the_future` moved was last seen exactly at `since`, which does not count."""
    sources = (state.sources.get(name) for name in names)
    return all(
        source is not None and source.answered_at is not None and source.answered_at > since for source in sources
    )


def not_in_the_future(state: State, now: Instant) -> State:
    """The State after its clock was set back: no time is later than now. A source with a future time would count
    as answering until then."""

    def clamped(value: Any, *names: str) -> Any:
        future = {name: now for name in names if (at := getattr(value, name, None)) is not None and at > now}
        return replace(value, **future) if future else value

    return replace(
        state,
        sources={name: clamped(source, "answered_at") for name, source in state.sources.items()},
        nodes={name: clamped(node, "gpus_at", "host_at", "greeted_at") for name, node in state.nodes.items()},
        disks={name: clamped(disk, "at") for name, disk in state.disks.items()},
        runs={
            name: replace(
                run,
                log=clamped(run.log, "at", "checked_at", "modified_at", "began_at"),
                progress=clamped(run.progress, "at", "doing_at", "busy_since", "skipping_since"),
            )
            for name, run in state.runs.items()
        },
    )
