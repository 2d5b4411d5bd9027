"""Rules about the end of a run: dead, ended early, stopped by a person, finished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import (
    LIVING,
    OVER,
    RunRule,
    all_sources,
    present_in,
    queue_in,
    tail,
)
from trainmon.alerting.rules.runs.retries import FAILED, crash_text, failed_in_a_row, restarts_without_step
from trainmon.analysis.runs import (
    REPORTED,
    SOMEBODY,
    Queue,
    has_begun,
    how_it_ended,
    last_attempts,
    target,
    where,
    who_stopped,
)
from trainmon.analysis.wandb import client_file
from trainmon.analysis.wandb import metric_names as wandb_keys
from trainmon.lib import Instant, ordinal
from trainmon.model import Alert, AttemptEnd, Finding, Job, Run, State


class ExitRule(RunRule, frozen=True, kw_only=True):
    """Needs the log, the scheduler and W&B."""

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return all_sources(state, run)


class RunDead(ExitRule, frozen=True, kw_only=True):
    """A run ended before its target and no person ended it, or its attempts fail one after another. It is a warning if
    the next job is already pending or Slurm has requeued the job."""

    name: ClassVar[str] = "run-dead"
    origin: ClassVar[str] = "Linum's monitor: page at once, day or night; BLOOM's is-job-running watchdog"
    may_flap: ClassVar[bool] = False

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires, if accounting may still name a person or the next job
    waits. Otherwise the alert fires at once."""
    requeued: Duration = 900.0
    """How long after its last step a requeued job may be pending. Slurm itself keeps it pending for two minutes."""
    attempts: int = 3
    """Critical after this many attempts in a row that failed, or made no step, even if the next one has started."""
    attempts_within: Duration = 21_600.0
    """The attempts are counted within this time."""
    settled: Duration = 1_800.0
    """How long the next attempt must train before the alert resolves."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        queue = queue_in(state, run)
        if queue is not None and run.verdict not in OVER:
            failing = self._failing_again(state, run, queue, now)
            if failing is not None:
                yield failing
                return
        if run.verdict == "queued" and queue is not None:
            yield from self._waits_after_failure(state, run, queue, now)
            yield from self._waits_requeued(state, run, queue, now)
        if (
            run.verdict != "dead"
            or _short_of(state, run, queue) is not None
            or _stopped_alert(state, run, queue) is not None
        ):
            return
        last = None if queue is None else queue.ended
        yield self.finding(
            state,
            run,
            "critical" if not run.spec.found or run.progress.step is not None else "info",
            f"{run.name} ended unexpectedly: {run.why.removeprefix('no job: ')}",
            evidence=tail(run),
            advice=advice.restarts(state, run),
            since=_ended_at(state, run, queue),
            fires_at_once=last is None or last.stage == "ended",
            by_age=last is None,
        )

    def _failing_again(self, state: State, run: Run, queue: Queue, now: Instant) -> Finding | None:
        """Its attempts fail one after another. A run that has ended is reported by its end."""
        failed = failed_in_a_row(queue, self.attempts_within, now)
        if len(failed) < self.attempts:
            failed, job = (), queue.present or queue.waiting
            if job is not None and _was_requeued_here(state, run, job, run.progress.at or 0.0):
                return None
            if run.verdict in LIVING or restarts_without_step(state, run, self.attempts_within, now) < self.attempts:
                return None
        else:
            began = None if queue.present is None else queue.present.started_at
            has_settled = began is not None and run.verdict in LIVING and now - began >= self.settled
            if has_settled or who_stopped(run, failed[0], state.actions, now) is not None:
                return None
        return self.finding(
            state,
            run,
            "critical",
            crash_text(run, failed, now),
            evidence=(*(how_it_ended(job, now) for job in failed[:5]), *tail(run)),
            advice=f"cancel the pending jobs ({advice.cancels(run)}); check the log (key 4); if all failures "
            "share a node (key 7), exclude it (X)",
            since=failed[-1].ends_at if failed else run.progress.at,
            fires_at_once=True,
        )

    def _waits_after_failure(self, state: State, run: Run, queue: Queue, now: Instant) -> Iterator[Finding]:
        """Its last attempt failed and its next job waits: nothing trains."""
        last = queue.ended
        if last is None or queue.waiting is None or last.state not in FAILED or not has_begun(last):
            return
        if who_stopped(run, last, state.actions, now) is None:
            yield self.finding(
                state,
                run,
                "warning",
                f"{run.name} has failed, and does not train until its next job starts: {run.why}",
                evidence=tail(run),
                advice=f"see whether the next job would fail, too (key 4); H holds it: trainmon-tui hold {run.name}",
                since=last.ends_at,
            )

    def _waits_requeued(self, state: State, run: Run, queue: Queue, now: Instant) -> Iterator[Finding]:
        """Slurm requeued its job because a node failed or for another job, and no person requested that."""
        job, last_at = queue.waiting, run.progress.at
        if job is None or queue.ended is not None or not job.restarts or last_at is None:
            return
        if now - last_at < self.requeued or job.priority == 0 or _was_requeued_here(state, run, job, last_at):
            return
        yield self.finding(
            state,
            run,
            "warning",
            f"{run.name} does not train: Slurm has requeued its job, for the {ordinal(job.restarts)} time; {run.why}; "
            f"its last step was {ago(now - last_at)} ago, {where(run.progress)}",
            evidence=tail(run),
            advice="key 7 shows its place in the queue, sinfo -R whether a node failed; a smaller job or another "
            "partition may start sooner",
            since=last_at,
            by_age=True,
        )


class EndedEarly(ExitRule, frozen=True, kw_only=True):
    """The job or W&B says that the run ended well, but the run did not reach its target."""

    name: ClassVar[str] = "ended-early"
    origin: ClassVar[str] = "an exit status of 0 means success only at the target step"
    may_flap: ClassVar[bool] = False

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        queue = queue_in(state, run)
        short = _short_of(state, run, queue) if run.verdict == "dead" else None
        if short is None or _stopped_alert(state, run, queue) is not None:
            return
        yield self.finding(
            state,
            run,
            "critical",
            f"{run.name} ended without an error at step {short[0]:,} of {short[1]:,}: {run.why}",
            evidence=tail(run),
            advice=advice.restarts(state, run),
            since=_ended_at(state, run, queue),
        )


class RunStopped(ExitRule, frozen=True, kw_only=True):
    """A person ended the run: with its kill switch, by cancelling its job, or with an action of trainmon-tui."""

    name: ClassVar[str] = "run-stopped"
    origin: ClassVar[str] = "a deliberate end is information, not an alarm"

    for_: Duration = 60.0
    """How long to wait for accounting to name who cancelled the job. Otherwise the alert fires at once."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        queue = queue_in(state, run)
        stopped = _stopped_alert(state, run, queue) if run.verdict == "dead" else None
        if run.verdict != "stopped" and stopped is None:
            return
        yield self.finding(
            state,
            run,
            "info",
            f"{run.name} was stopped by a person: {run.why}" if stopped is None else stopped.summary,
            evidence=tail(run, 3),
            advice=f"no action if that was intended; to continue, {advice.requeues(state, run)}",
            since=_ended_at(state, run, queue),
            fires_at_once=not run.why.startswith(SOMEBODY),
            person=True,
        )


class Finished(ExitRule, frozen=True, kw_only=True):
    """The run has ended at its target step. It is a warning if its evaluation failed."""

    name: ClassVar[str] = "finished"
    origin: ClassVar[str] = "our choice"

    for_: Duration = 45.0
    """How long to wait for the end of the log, which may show that the evaluation failed."""
    new_for: Duration = 43_200.0
    """A daemon that starts after the event still reports it, until this long after the last step."""

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        """While a job of it runs, it has not finished, whatever is silent: it hides no alert of that job."""
        run = state.runs.get(alert.run or "")
        has_job = run is not None and present_in(state, run) is not None
        return None if has_job else super().why_unknown(state, alert, now)

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        current = None if run.wandb is None else run.wandb.current
        since = current.heartbeat_at if run.progress.at is None and current is not None else run.progress.at
        if run.verdict != "finished" or since is None or now - since > self.new_for:
            return
        loss = "" if run.progress.loss is None else f", loss {run.progress.loss:.4g}"
        end = _end_in_ledger(state, run)
        has_failed = end is not None and end.cause is not None and end.cause.cause == "evaluator"
        how = "has reached its target, and its evaluation failed" if has_failed else "has finished"
        yield self.finding(
            state,
            run,
            "warning" if has_failed else "info",
            f"{run.name} {how}: {run.why}{loss}; its last step was {ago(now - since)} ago",
            evidence=tail(run, 3),
            advice=advice.restarts(state, run) if has_failed else "",
            since=self.first_reported(state, run, since, now, 600.0),
            event=True,
            fires_at_once=end is not None,
        )


def _was_requeued_here(state: State, run: Run, job: Job, since: Instant) -> bool:
    """Whether a person requeued the job from here."""
    return any(
        record.action.verb == "requeue" and (record.action.run == run.name or record.action.job == job.key)
        and record.done_at is not None and record.done_at >= since - 60.0
        for record in state.actions.values()
    )  # fmt: skip


def _short_of(state: State, run: Run, queue: Queue | None) -> tuple[int, int] | None:
    """The last step and the target step of a run that ended as if it were complete."""
    wandb = client_file.evidence(run)
    goal, current = target(run), None if wandb is None else wandb.current
    by_wandb = None if current is None else wandb_keys.step_of(current)
    step = max(run.progress.step or 0, by_wandb or 0)
    if goal is None or step >= goal or (run.progress.step is None and by_wandb is None):
        return None
    last = None if queue is None else queue.ended
    is_active = wandb is not None and bool(wandb.active)
    has_ended = current is not None and current.state == "finished" and not is_active
    end = _end_in_ledger(state, run)
    has_ended = has_ended or (end is not None and end.cause is not None and end.cause.cause == "completed")
    return (step, goal) if (has_ended if last is None else last.state == "COMPLETED") else None


def _ended_at(state: State, run: Run, queue: Queue | None) -> Instant | None:
    """When the run ended, by its job; else by its last attempt, else by its last step."""
    last = None if queue is None else queue.ended
    end = _end_in_ledger(state, run)
    at = None if last is None else last.ends_at or last.gone_at
    at = end.at if at is None and end is not None and end.source in REPORTED else at
    return at if at is not None else run.progress.at


def _end_in_ledger(state: State, run: Run) -> AttemptEnd | None:
    """The end of its last attempt."""
    attempt = last_attempts(one for one in state.attempts.values() if one.run_id == run.name).get(run.name)
    return None if attempt is None else attempt.end


def _stopped_alert(state: State, run: Run, queue: Queue | None) -> Alert | None:
    """The open alert that a person ended the run, from before a restart of this program."""
    if (ended := _ended_at(state, run, queue)) is None:
        return None
    known = (one for one in state.alerts.values() if one.is_open and (one.rule, one.run) == (RunStopped.name, run.name))
    return next((one for one in known if abs(one.since - ended) <= 60.0), None)
