"""A rule about another attempt of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from trainmon.clock import Instant
from trainmon.endings import Queue, has_begun, how_it_ended
from trainmon.model import Run, State
from trainmon.model_alerts import Finding
from trainmon.rules.base import Duration, ago
from trainmon.rules.runs.base import RunRule, all_sources, queue_in, tail
from trainmon.scene import where
from trainmon.wandb_group import label


class Restarted(RunRule, frozen=True, kw_only=True):
    """Another attempt of the run is running: its job was requeued, the next job has started, or its steps have gone
    back."""

    name: ClassVar[str] = "restarted"
    origin: ClassVar[str] = "our choice"

    new_for: Duration = 900.0
    """A daemon that starts later still reports it until this long after the restart."""

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return all_sources(state, run)

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        queue = queue_in(state, run)
        if run.jobs:
            found = None if queue is None else _by_its_job(run, queue, now)
        else:
            found = _by_wandb(run) or _by_its_log(run)
        if found is None or now - found.at > self.new_for:
            return
        last = "" if run.progress.step is None else f"; the last that was seen is {where(run.progress)}"
        yield self.found(
            state,
            run,
            "info",
            f"{run.name} was restarted {ago(now - found.at)} ago: {found.words}{last}",
            evidence=tail(run, 3),
            since=self.steady(state, run, found.at, now, 30.0),
            event=True,
            proven=True,
        )


class _Restart(NamedTuple):
    at: Instant
    words: str


def _by_its_job(run: Run, queue: Queue, now: Instant) -> _Restart | None:
    job = queue.present
    if job is None or job.started_at is None or job.state != "RUNNING":
        return None
    last = queue.ended
    is_after = last is not None and has_begun(last) and (last.ends_at or last.gone_at or now) <= job.started_at + 60.0
    if last is not None and is_after:
        return _Restart(job.started_at, f"job {job.id} has taken over; {how_it_ended(last, now)}")
    if job.restarts:
        return _Restart(job.started_at, f"job {job.id} was requeued, for the {ordinal(job.restarts)} time")
    return None


def _by_wandb(run: Run) -> _Restart | None:
    wandb = run.wandb
    current = None if wandb is None else wandb.current
    before = None if wandb is None else wandb.before
    if wandb is None or current is None or before is None or wandb.phase != "active" or current.created_at is None:
        return None
    return _Restart(current.created_at, f"W&B shows {label(current)} after {label(before)}")


def _by_its_log(run: Run) -> _Restart | None:
    memory = run.memory
    if memory.back_at is None or memory.back_from is None:
        return None
    return _Restart(memory.back_at, f"its steps went back from {memory.back_from:,}")


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
