"""The verdict on a run whose last attempt has ended by the ledger, and of which nothing newer is seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainmon.analysis.runs.context import (
    AFTERGLOW,
    Judgement,
    RunContext,
    has_reached_target,
    no_slurm_answer,
    our_time,
    target,
    where,
)
from trainmon.analysis.runs.log_end import finished
from trainmon.lib import Instant, duration
from trainmon.model import Attempt, AttemptEnd, Run

REPORTED = frozenset({"receipt", "queue", "accounting"})
"""Sources that state an end. The others conclude it from what the run itself still shows."""

BY_A_PERSON = frozenset({"cancelled-by-user", "kill-switch"})


def last_attempts(attempts: Iterable[Attempt]) -> Mapping[str, Attempt]:
    """The newest attempt of each run, by the name of the run."""
    return {one.run_id: one for one in sorted(attempts, key=lambda one: one.start)}


def after_its_attempt(run: Run, context: RunContext, now: Instant) -> Judgement | None:
    """The verdict on a run without a job; None if its last attempt has not ended, or something newer is seen of it."""
    attempt = context.last_attempts.get(run.name)
    is_going = run.spec.process is not None and run.spec.ended_at is None
    if is_going or attempt is None or attempt.end is None or attempt.end.source not in REPORTED:
        return None
    host = context.nodes.get(run.log.host) if run.log is not None and attempt.job_id is not None else None
    ended_at = our_time(attempt.end.at, (host.clock_skew_s or 0.0) if host is not None else 0.0) or 0.0
    if _goes_on(run, ended_at) and not attempt.outlived_by:
        return None
    what = "its command" if attempt.job_id is None else f"job {attempt.job_id}"
    cause = "" if attempt.end.cause is None else f": {_cause(attempt.end)}"
    at = "" if run.progress.at is None else f", at {where(run.progress)}"
    how = f"{what} ended {duration(max(0.0, now - ended_at))} ago{cause}{at}"
    silence = no_slurm_answer(run, context, now)
    if attempt.job_id is not None and silence:
        return Judgement("unknown", f"{how}; {silence}: whether another job runs is not known")
    return _by_its_cause(run, attempt, attempt.end, how)


def _by_its_cause(run: Run, attempt: Attempt, end: AttemptEnd, how: str) -> Judgement:
    cause, goal = None if end.cause is None else end.cause.cause, target(run)
    is_well = (end.exit_code == 0 and not end.signal) or end.scheduler_state == "COMPLETED"
    is_said = cause == "completed" and (end.exit_code, end.signal, end.scheduler_state) == (None, None, None)
    if (is_well or is_said) and has_reached_target(run):
        return finished(run, how)
    if end.cause is not None and cause in BY_A_PERSON and end.cause.confidence == "high":
        return Judgement("stopped", how)
    if cause != "completed":
        return Judgement("dead", how)
    if goal is not None:
        return Judgement("dead", f"{how} of {goal:,}: not finished")
    return Judgement("finished" if attempt.job_id is None else "unknown", f"{how}; no target step is known")


def _cause(end: AttemptEnd) -> str:
    """`python-exception (ValueError)`, and who cancelled it."""
    assert end.cause is not None
    exception = f" ({end.cause.exception})" if end.cause.exception else ""
    _, by, who = (end.scheduler_state or "").partition(" by ")
    return end.cause.cause + exception + (by + who if end.cause.cause in BY_A_PERSON else "")


def _goes_on(run: Run, ended_at: Instant) -> bool:
    """Whether a step, a line of its log or a heartbeat of W&B came after the end."""
    margin = max(AFTERGLOW, 3 * (run.progress.cadence_s or 0.0))
    current = None if run.wandb is None or not run.wandb.active else run.wandb.current
    logged_at = None if run.log is None else run.log.at
    signs = (run.progress.at, logged_at, None if current is None else current.heartbeat_at)
    return any(at is not None and at > ended_at + margin for at in signs)
