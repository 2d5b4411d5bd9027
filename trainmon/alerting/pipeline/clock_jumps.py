"""Whether the clock has jumped, or this program has slept, and what of the past is then believed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.rules import ago
from trainmon.lib import Instant, Seconds
from trainmon.model import Finding, Run, State

JUMP: Seconds = 10.0
"""How far the clock of the wall must move besides the time that passed, to have been set: NTP slews by less."""

STANDSTILL: Seconds = 30.0
"""Between two looks, of which there is one a second: this program was stopped, or its machine was."""

SETTLING: Seconds = 60.0
"""So long after that a source is not believed before it has spoken, and no silence at all: a connection that is dead,
and not yet known to be, is redialled within it."""


class Moment(NamedTuple):
    """One time by two clocks."""

    wall: Instant
    steady: Seconds


class Jump(NamedTuple):
    """What lay between two looks that were not one after the other."""

    outage: Seconds
    """How long nobody looked, as far as can be told."""
    shift: Seconds
    """By how much the clock of the wall moved besides the time that passed here; negative: it was set back."""
    why: str


def jumped(last: Moment | None, present: Moment) -> Jump | None:
    """The jump between two looks; None when there was none. A machine that sleeps looks as if its clock were set: the
    steady clock stands still meanwhile."""
    if last is None:
        return None
    passed = max(0.0, present.steady - last.steady)
    shift = present.wall - last.wall - passed
    if shift > JUMP:
        return Jump(passed + shift, shift, f"this program slept for {ago(shift)}, or its clock was set forward by that")
    if shift < -JUMP:
        return Jump(passed if passed > STANDSTILL else 0.0, shift, f"its clock was set back by {ago(-shift)}")
    if passed > STANDSTILL:
        return Jump(passed, 0.0, f"this program stood still for {ago(passed)}")
    return None


def is_believed(state: State, finding: Finding, now: Instant) -> bool:
    """Whether what was found now is so: a sample from after the last jump shows it, or it began after it. What was
    found by its age alone waits until all had time to speak."""
    woke = state.woke_at
    if woke is None or now - woke >= SETTLING or (finding.since is not None and finding.since > woke):
        return True
    return not finding.by_age and _have_spoken(state, finding.sources, woke)


def may_be_over(state: State, sources: Collection[str], now: Instant) -> bool:
    """Whether it means anything that something is not found now: all that it rests on has spoken since the last
    jump."""
    woke = state.woke_at
    return woke is None or now - woke >= SETTLING or (bool(sources) and _have_spoken(state, sources, woke))


def not_dated_ahead(state: State, now: Instant) -> State:
    """The State after its clock was set back: what is dated ahead happened now at the latest. A source that is dated
    ahead would look well for as long as the clock was set back."""
    return replace(
        state,
        sources={name: _clamped(source, now, ("seen_at",)) for name, source in state.sources.items()},
        nodes={name: _clamped(node, now, ("gpus_at", "host_at", "greeted_at")) for name, node in state.nodes.items()},
        disks={name: _clamped(disk, now, ("at",)) for name, disk in state.disks.items()},
        runs={name: _run(run, now) for name, run in state.runs.items()},
    )


def _run(run: Run, now: Instant) -> Run:
    log = None if run.log is None else _clamped(run.log, now, ("at", "checked_at", "began_at"))
    progress = _clamped(run.progress, now, ("at", "doing_at", "busy_since", "skipping_since"))
    if log is run.log and progress is run.progress:
        return run
    return replace(run, log=log, progress=progress)


def _clamped(value: Any, now: Instant, names: tuple[str, ...]) -> Any:
    ahead = {name: now for name in names if (at := getattr(value, name)) is not None and at > now}
    return replace(value, **ahead) if ahead else value


def _have_spoken(state: State, names: Iterable[str], since: Instant) -> bool:
    """Those of a clock that was set back seem to have spoken just then, which is no word: `not_dated_ahead`."""
    seen = (source.seen_at if (source := state.sources.get(name)) is not None else None for name in names)
    return all(at is not None and at > since for at in seen)
