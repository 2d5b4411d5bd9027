"""The rule about another attempt of a run, and what shows that attempts fail one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import ClassVar, NamedTuple

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs.base import RunRule, all_sources, queue_in, tail
from trainmon.analysis.retries import decide, is_on_purpose
from trainmon.analysis.runs import Queue, has_begun, how_it_ended, where
from trainmon.analysis.wandb import are_separate, label
from trainmon.lib import Instant, Seconds, counted, ordinal
from trainmon.model import Alert, Attempt, Finding, Job, Run, State, verdict_text


class Restarted(RunRule, frozen=True, kw_only=True):
    """Another attempt of the run is running: its job was requeued, the next job has started, or its steps have gone
    back. It is a warning if the attempt before ended for a cause that a plain retry does not help."""

    name: ClassVar[str] = "restarted"
    origin: ClassVar[str] = "our choice"

    new_for: Duration = 900.0
    """A daemon that starts after the event still reports it, until this long after the restart."""

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return all_sources(state, run)

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        queue = queue_in(state, run)
        by_job = None if queue is None else _by_its_job(queue, now)
        found = by_job if run.jobs else _by_wandb(run) or _by_its_log(run)
        if found is None or now - found.at > self.new_for:
            return
        own = (one for one in state.attempts.values() if one.run_id == run.name and one.end is not None)
        before = max((one for one in own if one.start < found.at), key=lambda one: one.ended_at or 0.0, default=None)
        against = None if before is None else _against_decision(before, state, run)
        yield self.finding(
            state,
            run,
            "info" if against is None else "warning",
            f"{run.name} restarted {ago(now - found.at)} ago: {found.what}{found.detail}"
            f"{_reached(before, run, found.at)}",
            evidence=(*tail(run, 3), *((f"the attempt before: {against}",) if against is not None else ())),
            since=self.first_reported(state, run, found.at, now, 30.0, partial(_is_about, found)),
            event=True,
            fires_at_once=True,
        )


def _reached(before: Attempt | None, run: Run, at: Instant) -> str:
    """How far the run had come before this restart. Its progress may already be that of the new attempt."""
    if run.progress.step is not None and (run.progress.at or 0.0) <= at:
        return f"; the last known progress was {where(run.progress)}"
    step = None if before is None else before.last_step
    return "" if step is None else f"; the attempt before reached step {step:,}"


BETWEEN: Seconds = 2.0
"""The clocks of a log and of Slurm may differ by this much."""


def _against_decision(before: Attempt, state: State, run: Run) -> str | None:
    """Why the attempt before should not have been retried as it was, if so."""
    if before.retry_decision not in ("stop", "after-change", "evaluator"):
        return None
    decision = decide(before, state.attempts.values(), run.spec.retry)
    return None if decision is None or is_on_purpose(decision.cause) else decision.why


class Restart(NamedTuple):
    """One start of a run after another."""

    at: Instant
    what: str
    """What shows it. No other restart at about that time has the same words."""
    detail: str = ""


def _is_about(restart: Restart, alert: Alert) -> bool:
    """Whether an alert is about this restart: two may follow each other within seconds."""
    return abs(alert.since - restart.at) < BETWEEN or f": {restart.what};" in f"{alert.summary};"


def _by_its_job(queue: Queue, now: Instant) -> Restart | None:
    job, last = queue.present, queue.ended
    if job is None or job.started_at is None or job.state != "RUNNING":
        return None
    ended_at = None if last is None or not has_begun(last) else last.ends_at or last.gone_at or now
    was_requeued = bool(job.restarts) and (ended_at or 0.0) < (job.submitted_at or 0.0)  # a requeue submits it anew
    if last is not None and ended_at is not None and ended_at <= job.started_at + 60.0 and not was_requeued:
        return Restart(job.started_at, f"now job {job.id}", f"; before, {how_it_ended(last, now)}")
    requeued = f"job {job.id} was requeued, for the {ordinal(job.restarts or 0)} time"
    return Restart(job.started_at, requeued) if job.restarts else None


def _by_wandb(run: Run) -> Restart | None:
    if run.wandb is None or run.wandb.phase != "active":
        return None
    current, before = run.wandb.current, run.wandb.before
    if current is None or before is None or current.created_at is None or are_separate(current, before):
        return None
    if current.created_at < (before.created_at or 0.0):  # it was resumed; its steps show when
        return None
    return Restart(current.created_at, f"W&B shows {label(current)} after {label(before)}")


def _by_its_log(run: Run) -> Restart | None:
    at, step = run.memory.back_at, run.memory.back_from
    return None if at is None or step is None else Restart(at, f"its steps went back from {step:,}")


FAILED = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED"})
"""Ends that a chain of jobs is not meant to have. Its time limit and a preemption are not among them."""


def failed_in_a_row(queue: Queue, within: Seconds, now: Instant) -> Sequence[Job]:
    """Its last attempts that all failed within this time, the newest first."""
    if queue.ended is None:
        return ()
    ended = (job for job in queue.jobs if job.stage == "ended" or job.gone_at is not None)
    failed = takewhile(lambda job: job.state in FAILED and has_begun(job), ended)
    return tuple(job for job in failed if now - (job.ends_at or 0.0) <= within)


def restarts_without_step(state: State, run: Run, within: Seconds, now: Instant) -> int:
    """How many of its restarts since its last step were reported. A job that is requeued leaves no ended jobs. Without
    the log, nobody knows; what its attempts before have done, the ledger knows."""
    if run.progress.at is None and (run.log is None or run.log.at is None):
        return 0
    ours = (one for one in state.alerts.values() if (one.rule, one.run) == (Restarted.name, run.name) and one.fired_at)
    reported = [one.since for one in ours if one.since > max(run.progress.at or 0.0, now - within)]
    attempts = (one for one in state.attempts.values() if one.run_id == run.name) if reported else ()
    last = max((one.ended_at or one.seen_at for one in attempts if one.last_step is not None), default=0.0)
    return sum(since > last for since in reported)


def crash_text(run: Run, failed: Sequence[Job], now: Instant) -> str:
    """How the attempts of a run failed."""
    now_is = f"now it is {verdict_text(run.verdict)}: {run.why}"
    if failed:
        began = min(job.started_at or job.ends_at or now for job in failed)
        lasted = ago((failed[0].ends_at or now) - began)
        count, last = f"{counted(len(failed), 'attempt')} in a row failed in {lasted}", how_it_ended(failed[0], now)
        return f"{run.name} keeps failing: {count}; the last one, {last}; {now_is}"
    if run.progress.step is None:
        return f"{run.name} keeps being restarted, and has made no step yet; {now_is}"
    at = "" if run.progress.at is None else f", which was {ago(now - run.progress.at)} ago"
    return f"{run.name} keeps being restarted, and has made no step since {where(run.progress)}{at}; {now_is}"
