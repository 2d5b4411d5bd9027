"""A rule about another attempt of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar, NamedTuple

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs.base import LIVING, RunRule, all_sources, queue_in, tail
from trainmon.analysis.runs import Queue, has_begun, how_it_ended, where
from trainmon.analysis.wandb import label
from trainmon.lib import Instant, Seconds
from trainmon.model import Finding, Job, Run, State


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
            fires_at_once=True,
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


FAILED = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED"})
"""Ends that a chain of jobs is not meant to have: its time limit and a preemption are."""


def in_a_row(queue: Queue, within: Seconds, now: Instant) -> Sequence[Job]:
    """Its last attempts that all failed, the newest first, as far as they are no older."""
    ended = (job for job in queue.jobs if job.stage == "ended" or job.gone_at is not None)
    failed = takewhile(lambda job: job.state in FAILED and has_begun(job), ended)
    return tuple(job for job in failed if now - (job.ends_at or 0.0) <= within)


def begun_in_vain(state: State, run: Run, within: Seconds, now: Instant) -> int:
    """How often it was restarted since its last step, as was told: one job that is requeued leaves no ended ones."""
    last = max(run.progress.at or 0.0, now - within)
    return sum(
        alert.rule == "restarted" and alert.run == run.name and alert.fired_at is not None and alert.since > last
        for alert in state.alerts.values()
    )


def is_well(run: Run, queue: Queue, settled: Seconds, now: Instant) -> bool:
    """Whether the attempt that runs has trained for long enough to be believed."""
    job = queue.present
    began = None if job is None else job.started_at
    return began is not None and run.verdict in LIVING and now - began >= settled


def words(run: Run, failed: Sequence[Job], now: Instant) -> str:
    if not failed:
        last = "" if run.progress.at is None else f", which was {ago(now - run.progress.at)} ago"
        return (
            f"{run.name} is restarted again and again, and has made no step since {where(run.progress)}{last}; now it "
            f"is {run.verdict}: {run.why}"
        )
    began = min(job.started_at or job.ends_at or now for job in failed)
    return (
        f"{run.name} dies again and again: {len(failed)} attempts in a row failed in {ago(now - began)}; the last, "
        f"{how_it_ended(failed[0], now)}; now it is {run.verdict}: {run.why}"
    )
