"""Which of the W&B runs that match a run of ours trains now, and what it means when none does, or several do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, duration
from trainmon.model import RUNS_AT_MOST, Beat, GroupPhase, Wandb, WandbRun, WandbSpec

BELIEVED_FOR: Seconds = 600.0
"""W&B has shown runs as running for weeks after they were gone. wandb beats every 30 s, the server gives up after 5
minutes, and wandb's own terminal UI after 10."""

SWEEP: Seconds = 300.0
"""So long after its last heartbeat the server says that a run has crashed."""

SILENT: Seconds = 180.0
"""Six heartbeats behind a newer run: it was killed, and another was resumed before the server noticed."""

WHOLE_SECONDS: Seconds = 2.0
"""The server tells times without fractions: two that are so close may have been in any order."""

MOVES_WITHIN: Seconds = 120.0
"""A heartbeat that looks old at our first look may be that of a server whose clock is behind ours: then it moves."""

ALIVE = frozenset({"running", "preempting"})

ENDS: Mapping[str, str] = {
    "finished": "finished",
    "failed": "failed",
    "crashed": "crashed",
    "killed": "was killed",
    "preempted": "was preempted",
    "pending": "has not begun",
}

NAMED_AT_MOST = 5


class Group(NamedTuple):
    """Who trains, and what that means: fields of Wandb."""

    active: tuple[str, ...]
    phase: GroupPhase
    since: Instant
    why: str
    beats: Mapping[str, Beat]
    attempts: tuple[str, ...]


class _Look(NamedTuple):
    """All that one judgement is made of."""

    spec: WandbSpec
    active: Sequence[WandbRun]
    last: WandbRun | None
    """The one that trains, else the last that did."""
    beats: Mapping[str, Beat]
    before: Wandb
    at: Instant
    stopped: bool


def read(spec: WandbSpec, runs: Sequence[WandbRun], before: Wandb | None, at: Instant, stopped: bool) -> Group:
    """Judge the runs, the newest first, as they are known at this time of ours. `stopped`: a person ended the run."""
    before = before or Wandb()
    beats = {run.id: _beat(run, before.beats.get(run.id), at) for run in runs if run.state in ALIVE}
    running = [run for run in runs if run.id in beats and age(beats[run.id], at) <= BELIEVED_FOR]
    active = [run for run in running if not _is_followed(run, running)]
    attempts = _attempts(runs, active, before)
    last = next((run for name in attempts for run in runs if run.id == name), None)
    look = _Look(spec, active, last, beats, before, at, stopped)
    phase, ids = _phase(look), tuple(run.id for run in active)
    is_same = phase == before.phase and (not active or ids == before.active)
    since = before.since if is_same and before.since is not None else _since(look, phase)
    return Group(ids, phase, since, _why(look, phase), beats, attempts)


def age(beat: Beat, now: Instant) -> Seconds:
    """How old a heartbeat is. One that was never seen to move may be older than our first look at it."""
    seen = now - beat.seen_at
    return max(0.0, seen if beat.moved else max(seen, now - beat.at))


def silent_for(wandb: Wandb, run: WandbRun, now: Instant) -> Seconds | None:
    """For how long nothing was heard of a run, to be shown: by its server's clock; by ours where the two plainly
    differ, as a heartbeat tells that was seen to come."""
    if run.heartbeat_at is None:
        return None
    beat = wandb.beats.get(run.id)
    if beat is not None and beat.moved and abs(beat.seen_at - beat.at) > MOVES_WITHIN:
        return age(beat, now)
    return max(0.0, now - run.heartbeat_at)


def _beat(run: WandbRun, before: Beat | None, at: Instant) -> Beat:
    beat = run.heartbeat_at or run.created_at or at
    if before is None:
        return Beat(beat, at)
    if run.heartbeat_at is None or beat <= before.at:
        return before
    return Beat(beat, at, moved=True)


def _is_followed(run: WandbRun, running: Sequence[WandbRun]) -> bool:
    """Whether this one has fallen silent, and a newer one beats: it has not beaten since that began, or for long. All
    by the server's clock, whatever ours says."""
    last = run.heartbeat_at
    if last is None:
        return False
    later = [other for other in running[: running.index(run)] if other.heartbeat_at is not None]
    began = [other.created_at for other in later if other.created_at is not None]
    return any(last < at - WHOLE_SECONDS for at in began) or any(
        (other.heartbeat_at or last) - last > SILENT for other in later
    )


def _attempts(runs: Sequence[WandbRun], active: Sequence[WandbRun], before: Wandb) -> tuple[str, ...]:
    """The order in which they trained: as we saw it, and of those before our time by their age."""
    newest = active[0] if active else max(runs, key=_end, default=None)
    if newest is None:
        return before.attempts
    if not before.attempts:
        others = sorted((run for run in runs if run is not newest), key=_end, reverse=True)
        return (newest.id, *(run.id for run in others))[:RUNS_AT_MOST]
    known = set(before.attempts)
    if not active and newest.id in known:
        return before.attempts
    missed = [run.id for run in runs if run.id not in known and run is not newest]
    if newest.id == before.attempts[0]:
        return (newest.id, *_with(before.attempts[1:], missed, runs))[:RUNS_AT_MOST]
    return (newest.id, *_with(before.attempts, missed, runs))[:RUNS_AT_MOST]


def _with(attempts: tuple[str, ...], missed: Sequence[str], runs: Sequence[WandbRun]) -> tuple[str, ...]:
    """The attempts, and those that came and went between two looks at us, each before the first that is older."""
    places = {run.id: place for place, run in enumerate(runs)}
    for name in reversed(missed):
        older = [i for i, other in enumerate(attempts) if places.get(other, len(runs)) > places[name]]
        at = older[0] if older else len(attempts)
        attempts = (*attempts[:at], name, *attempts[at:])
    return attempts


def _end(run: WandbRun) -> Instant:
    return run.heartbeat_at or run.created_at or 0.0


def _phase(look: _Look) -> GroupPhase:
    last = look.last
    if look.active:
        return "active" if len(look.active) == 1 else "several"
    if last is None:
        return "none"
    was_ended = look.before.phase == "ended" and look.before.attempts[:1] == (last.id,)
    if look.stopped or was_ended or last.state == "finished":
        return "ended"
    beat = look.beats.get(last.id)
    is_new = beat is not None and look.at - beat.seen_at < MOVES_WITHIN
    is_late = look.at - _gone_since(look, last) > look.spec.restart_grace
    return "overdue" if is_late and not is_new else "waiting"


def _since(look: _Look, phase: GroupPhase) -> Instant:
    at, last = look.at, look.last
    if look.before.phase == "none" and look.before.since is None:  # the first look: it has been so for longer
        if look.active:
            return min(at, look.active[0].created_at or at)
        return at if last is None else min(at, _gone_at(last))
    return _gone_since(look, last) if phase in ("waiting", "overdue") and last is not None else at


def _gone_since(look: _Look, last: WandbRun) -> Instant:
    """Since when none is active: as we saw it, else as its heartbeat tells."""
    before = look.before
    if before.phase in ("waiting", "overdue") and before.since is not None and before.attempts[:1] == (last.id,):
        return before.since
    return look.at if before.phase in ("active", "several") else min(look.at, _gone_at(last))


def _gone_at(last: WandbRun) -> Instant:
    """When it was noticed that it is gone: a crash is, after its last heartbeat, by the server's patience or ours."""
    late = SWEEP if last.state == "crashed" else BELIEVED_FOR if last.state in ALIVE else 0.0
    return _end(last) + late


def _why(look: _Look, phase: GroupPhase) -> str:
    active, last, spec = look.active, look.last, look.spec
    if last is None:
        return f"W&B has no run of {spec.description}"
    match phase:
        case "active":
            return f"{label(active[0])} is running"
        case "several":
            named = ", ".join(label(run) for run in active[:NAMED_AT_MOST])
            more = f" and {len(active) - NAMED_AT_MOST} more" if len(active) > NAMED_AT_MOST else ""
            return f"{len(active)} runs are active where one is expected: {named}{more} ({spec.description})"
        case "ended":
            return f"{label(last)} {how_it_ended(last)}" + ("" if last.state == "finished" else "; the run was stopped")
        case "overdue":
            return f"{label(last)} {how_it_ended(last)}, and none has followed in {duration(spec.restart_grace)}"
    ended = f"{label(last)} {how_it_ended(last)}"
    return f"waiting for the restart: {ended}, the next is expected within {duration(spec.restart_grace)}"


def label(run: WandbRun) -> str:
    """A run as a person knows it: its display name, and its id where that is another."""
    return run.id if run.name in ("", run.id) else f"{run.name} ({run.id})"


def how_it_ended(run: WandbRun) -> str:
    """`crashed at step 12,000`; of one that is running to W&B alone, what is known."""
    where = "" if run.step is None else f" at step {run.step:,}"
    if run.state in ALIVE:
        return f"is {run.state} to W&B and sends no heartbeat{where and ', last' + where}"
    return f"{ENDS.get(run.state, 'is ' + run.state)}{where}"
