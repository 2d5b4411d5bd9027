"""Whether a run dies again and again: each attempt fails soon, and the next begins at once, so that it is never dead
for as long as anybody looks. So a whole array burns in a night. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from trainmon.clock import Instant, Seconds
from trainmon.endings import Queue, has_begun, how_it_ended
from trainmon.model import Run, State
from trainmon.model_jobs import Job
from trainmon.rules.base import ago
from trainmon.rules.runs.base import LIVING
from trainmon.scene import where

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
