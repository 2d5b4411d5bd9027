"""Rules about the attempts of a run: restarts, retries, trainers that outlived their job, and how a run ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar, NamedTuple

from trainmon.alerting.rules.base import Duration, Unseen, of_last_state, open_alert
from trainmon.alerting.rules.runs.base import (
    EVERYTHING,
    LIVING,
    JobRule,
    RunRule,
    how_to_hold,
    how_to_requeue,
    how_to_restart,
    queue_in,
    tail,
)
from trainmon.analysis.explanation import changes, resume_of
from trainmon.analysis.retries import (
    ENDED_ON_PURPOSE,
    STORM,
    TOO_LATE,
    RetryDecision,
    automatic,
    awaits_config,
    by_run,
    decide,
    in_vain,
    is_automatic,
    obstacle,
)
from trainmon.analysis.runs import (
    REPORTED,
    Queue,
    has_begun,
    how_it_ended,
    is_by_a_person,
    last_attempts,
    survivor,
    survivor_text,
    two_writers,
    where,
    who_stopped,
)
from trainmon.analysis.wandb import are_separate, client_file, label, metric_names
from trainmon.lib import Instant, Seconds, ago, counted, duration, ordinal, say
from trainmon.model import OVER, Alert, Attempt, AttemptEnd, Finding, Job, Record, Run, State, verdict_text

# ---- rules about the attempts of a run -------------------------------------------------------------------------------


of_runs = of_last_state(lambda state: by_run(state.attempts.values()))


class AttemptRule(JobRule, frozen=True, kw_only=True):
    """A rule about all attempts of a run. Slurm reports them, if the run has jobs."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if attempts := of_runs(state).get(run.name):
            yield from self.check_attempts(state, run, attempts, now)

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        """The findings about a run with these attempts, the newest last."""
        raise NotImplementedError


class AutoRequeued(AttemptRule, frozen=True, kw_only=True):
    """An attempt has ended early, and `auto_requeue` is not off: what was done or is suggested, and why.

    Defaults: our choice: people must know of automatic actions
    """

    name: ClassVar[str] = "auto-requeue"

    new_for: Duration = 1_800.0
    """A daemon that starts after the event still reports it, until this long after it."""

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        mode = run.spec.retry.auto_requeue
        if mode == "off":
            return
        ended = next((one for one in reversed(attempts) if one.end is not None), None)
        if ended is None or ended.end is None:
            return
        record = automatic(state, ended) if mode == "on" else None
        at = ended.end.at if record is None else record.done_at or record.settled_at or now
        if now - at > self.new_for or (record is None and run.verdict == "stopped"):
            return
        decision = decide(ended, state.attempts.values(), run.spec.retry, state.node_records)
        if decision is None or decision.cause in ENDED_ON_PURPOSE or (record is None and ended is not attempts[-1]):
            return
        text = _suggested(state, run, ended, decision) if record is None else _done(record)
        if text is None:
            return
        yield self.finding(
            state,
            run,
            "warning",
            f"{run.name} {text}",
            evidence=_evidence(run, ended, decision),
            advice=how_to_restart(state, run) if record is None else "trainmon-tui actions lists what was done",
            since=self.first_reported(state, run, at, now, 30.0, lambda one: one.since >= (ended.started_at or 0.0)),
            event=True,
            fires_at_once=True,
        )


def _done(record: Record) -> str | None:
    """What came of an automatic start; None while it is done."""
    what = "evaluated again" if record.action.verb == "evaluate" else "requeued"
    if record.status == "done":
        return f"was {what} automatically: {record.action.why}"
    return (
        None
        if record.status == "asked"
        else f"could not be {what} automatically ({say(record.outcome)}): {record.action.why}"
    )


def _suggested(state: State, run: Run, ended: Attempt, decision: RetryDecision) -> str | None:
    """What is said of an attempt that ended; None if the daemon is about to requeue it, or its job already waits."""
    is_armed = run.kill is not None and run.kill.exists
    jobs, may_act = (state.jobs.get(key) for key in run.jobs), is_automatic(decision, run.spec)
    may_help = may_act or decision.choice == "now"
    if may_help and any(job is not None and job.stage == "waiting" and not job.gone_at for job in jobs):
        return None
    if run.spec.retry.auto_requeue == "suggest":
        return f"may be retried: {decision.why}" if may_help else f"ended early: {decision.why}"
    why = "its kill switch is armed" if is_armed else obstacle(run, ended, decision, state)
    if why is None and not may_act and awaits_config(ended, decision, run.spec, state):
        return f"is requeued automatically if its config changes within {duration(TOO_LATE)} of the end: {decision.why}"
    if may_act or decision.choice != "now":
        return None if may_act and why is None else f"is not requeued automatically: {why if may_act else decision.why}"
    doubt = "its cause is not certain" if not decision.is_certain else "a person decides about a retry after this cause"
    return f"is not requeued automatically: {doubt}; {decision.why}"


def _evidence(run: Run, ended: Attempt, decision: RetryDecision) -> tuple[str, ...]:
    shown = () if ended.cause is None else ended.cause.evidence[:3]
    return (*((one.text for one in shown) if shown else tail(run, 3)), decision.budget_text)


class RetryStorm(AttemptRule, frozen=True, kw_only=True):
    """Attempts of a run end one after another without a new step and without a new checkpoint. No automatic retry
    follows.

    Defaults: NVRx: at most 3 cycles without progress; NeMo #3390: jobs replayed the same 10,000 steps
    """

    retries: int = STORM
    """The alert fires after this many retries without net progress."""
    within: Duration = 86_400.0
    """How recently the last one must have ended."""

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        if len(attempts) <= self.retries or now - (attempts[-1].ended_at or now) > self.within:
            return
        vain = in_vain(attempts)
        ends = [one.ended_at or 0.0 for one in vain]
        if len(vain) < self.retries or now - max(ends) > self.within:
            return
        steps = [one.last_step for one in vain if one.last_step is not None]
        reached = f", none beyond step {max(steps):,}" if steps else ""
        began = min(one.started_at or ended for one, ended in zip(vain, ends, strict=True))
        cost = sum(one.gpu_seconds or 0.0 for one in vain) / 3_600
        yield self.finding(
            state,
            run,
            "critical",
            f"{run.name} repeats the same steps: {counted(len(vain), 'attempt')} in "
            f"{ago(max(ends) - began)} made no new step and no new checkpoint{reached}",
            evidence=(*map(_line, vain), *((f"{cost:,.0f} GPU hours were spent on them",) if cost >= 1 else ())),
            advice=f"{how_to_hold(state, run)}find the cause before the next attempt (key 4)",
        )


def _line(attempt: Attempt) -> str:
    first = "?" if attempt.first_step is None else attempt.first_step
    steps = "no step" if attempt.last_step is None else f"steps {first} to {attempt.last_step}"
    which = f"restart {attempt.restart}" if attempt.restart is not None else attempt.attempt_id
    return f"{which}: {steps}, {attempt.cause and attempt.cause.cause}"


class WrongResume(AttemptRule, frozen=True, kw_only=True):
    """The running attempt has not resumed from the last committed checkpoint of the attempt before it.

    Defaults: Brooks: resume from the last committed checkpoint; NeMo #3390: two jobs resumed from an older one
    """

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: the newest checkpoint may not have been listed yet."""

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        *earlier, last = attempts
        if not last.is_open or not earlier or run.checkpoints is None:
            return
        resume = resume_of(earlier, last)
        began, expected = resume.began, resume.expected
        if not resume.is_wrong or began is None or expected is None:
            return
        if began < expected:
            again = f"{counted(expected - began, 'step')} are trained again"
            summary = f"{run.name} began at step {began:,}, not at its last committed checkpoint of step {expected:,}"
        else:
            again = "a resume from an incomplete checkpoint may be wrong"
            summary = f"{run.name} resumed from step {began:,}, which is not a committed checkpoint"
        yield self.finding(
            state,
            run,
            "warning" if began > 1 else "critical",
            f"{summary}: {again}",
            evidence=tuple(filter(None, (last.resumed_words, run.checkpoints.path))),
            advice="see which checkpoint its trainer loads, and whether its pointer is right",
            since=last.first_step_at or last.started_at,
        )


class StepsDiffer(AttemptRule, frozen=True, kw_only=True):
    """After a restart, steps that are computed again give the losses and gradient norms of the earlier attempt, then
    suddenly others, although no recorded setting has changed: data, config or code differ, or a value is corrupt.

    Defaults: our choice: a restart shows silent corruption at no cost
    """

    new_for: Duration = 3_600.0
    """How long after the first step of the attempt the alert is shown."""

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        before, last = attempts[max(0, len(attempts) - 2)], attempts[-1]
        found, since = last.recomputed, last.first_step_at or last.start
        if found is None or found.verdict != "differs" or now - since > self.new_for:
            return
        if any(one.field != "nodes" for one in changes(before, last)):
            return  # that may be why: the page of the attempt has both
        nodes = ", ".join(node for node in last.nodes if node not in before.nodes) or "none is known"
        yield self.finding(
            state,
            run,
            "info",
            f"{run.name}: {counted(found.steps, 'step')}, computed again, {found.text}",
            evidence=(f"nodes that changed: {nodes}",),
            advice="compare the order of the data, the config and the code; if all are the same, test its nodes",
            since=since,
            event=True,
        )


# ---- the rule about another attempt of a run, and what shows that attempts fail one after another --------------------


class Restarted(RunRule, frozen=True, kw_only=True):
    """Another attempt of the run is running: its job was requeued, the next job has started, or its steps have gone
    back. It is a warning if the attempt before ended for a cause for which a plain retry does not help.

    Defaults: our choice
    """

    reads = EVERYTHING

    new_for: Duration = 900.0
    """A daemon that starts after the event still reports it, until this long after the restart."""

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
            advice="see why the previous attempt ended: Enter on the run (key 1) lists its attempts, key 4 is its log",
            since=self.first_reported(state, run, found.at, now, 30.0, found.is_reported_by),
            event=True,
            fires_at_once=True,
        )


def _reached(before: Attempt | None, run: Run, at: Instant) -> str:
    """How far the run had come before this restart. Its progress may already be that of the new attempt."""
    if run.progress.step is not None and (run.progress.at or 0.0) <= at:
        return f"; the last known progress was {where(run.progress)}"
    step = None if before is None else before.last_step
    return "" if step is None else f"; the previous attempt reached step {step:,}"


BETWEEN: Seconds = 2.0
"""The clocks of a log and of Slurm may differ by this much."""


def _against_decision(before: Attempt, state: State, run: Run) -> str | None:
    """Why the attempt before should not have been retried as it was, if so."""
    decision = decide(before, state.attempts.values(), run.spec.retry, state.node_records)
    is_against = decision is not None and decision.choice in ("stop", "after-change", "evaluator")
    return decision.why if decision is not None and is_against and decision.cause not in ENDED_ON_PURPOSE else None


class Restart(NamedTuple):
    """One start of a run after another."""

    at: Instant
    what: str
    """What shows it. No other restart at about that time has the same words."""
    detail: str = ""

    def is_reported_by(self, alert: Alert) -> bool:
        """Whether an alert is about this restart: two may follow each other within seconds."""
        return abs(alert.since - self.at) < BETWEEN or f": {self.what};" in f"{alert.summary};"


def _by_its_job(queue: Queue, now: Instant) -> Restart | None:
    job, last = queue.present, queue.ended
    if job is None or job.started_at is None or job.state != "RUNNING":
        return None
    ended_at = None if last is None or not has_begun(last) else last.ends_at or last.gone_at or now
    was_requeued = bool(job.restarts) and (ended_at or 0.0) < (job.submitted_at or 0.0)  # a requeue submits it anew
    if last is not None and ended_at is not None and ended_at <= job.started_at + 60.0 and not was_requeued:
        return Restart(job.started_at, f"now job {job.id}", f"; previous {how_it_ended(last, now)}")
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
        lasted = ago((failed[0].ends_at or now) - min(job.started_at or job.ends_at or now for job in failed))
        count, last = f"{counted(len(failed), 'attempt')} in a row failed in {lasted}", how_it_ended(failed[0], now)
        return f"{run.name} keeps failing: {count}; the last one, {last}; {now_is}"
    if run.progress.step is None:
        return f"{run.name} keeps being restarted, and has made no step yet; {now_is}"
    at = "" if run.progress.at is None else f", which was {ago(now - run.progress.at)} ago"
    return f"{run.name} keeps being restarted, and has made no step since {where(run.progress)}{at}; {now_is}"


# ---- the rule about two trainers that write the same checkpoints -----------------------------------------------------


class SecondTrainer(AttemptRule, frozen=True, kw_only=True):
    """A trainer outlived its job: more than 30s after the scheduler's end, at least two new steps or checkpoints were
    written. Or two running jobs commit steps into one directory. No automatic retry follows, and `queue` and `requeue`
    ask for the job id.

    Defaults: our choice: two trainers destroy each other's checkpoints
    """

    reads = EVERYTHING

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        one, both = survivor(run, attempts, now), two_writers(run, state)
        if one is not None:
            summary = f"{run.name}: {survivor_text(one, now)}"
            advice = (
                f"end its processes on {', '.join(one.nodes) or 'its nodes'} before the run starts again: a second "
                "trainer would write to the same checkpoints"
            )
        elif both is not None:
            summary = f"{run.name}: jobs {both[0].id} and {both[1].id} both commit steps to {run.spec.checkpoints}"
            advice = f"cancel one of them: trainmon-tui cancel {both[1].id}; then check the newest checkpoint"
        else:
            return
        yield self.finding(
            state, run, "critical", summary, evidence=tail(run), advice=advice, fires_at_once=True, by_age=True
        )


# ---- rules about the end of a run ------------------------------------------------------------------------------------


class EndRule(RunRule, frozen=True, kw_only=True):
    """A rule about how a run ended."""

    reads = EVERYTHING

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """Once another job of it has begun, this end is over, whatever is silent: it hides no alert of that job. While
        any job of it runs, it has not finished."""
        run = state.runs.get(alert.run or "")
        queue = None if run is None else queue_in(state, run)
        has_begun_again = queue is not None and any(
            (job.started_at or 0.0) > alert.since or (alert.event and job is queue.present)
            for job in (queue.present, queue.ended)
            if job is not None
        )
        return None if has_begun_again else super().unseen(state, alert, now)


class RunDead(EndRule, frozen=True, kw_only=True):
    """A run ended before its target and no person ended it, or its attempts fail one after another. It is a warning if
    the next job is already pending or Slurm has requeued the job.

    Defaults: Linum's monitor: page at once, day or night; BLOOM's is-job-running watchdog
    """

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
            f"{run.name} ended unexpectedly: {run.why}",
            evidence=tail(run),
            advice=how_to_restart(state, run),
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
            advice=f"{how_to_hold(state, run)}see why it fails (key 4); if all failures share a node (key 7), exclude "
            "it (X)",
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
                f"{run.name} failed and is not training until its next job starts: {run.why}",
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


class EndedEarly(EndRule, frozen=True, kw_only=True):
    """The job or W&B reports that the run ended well, but the run did not reach its target.

    Defaults: an exit status of 0 means success only at the target step
    """

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
            advice=how_to_restart(state, run),
            since=_ended_at(state, run, queue),
        )


class RunStopped(EndRule, frozen=True, kw_only=True):
    """A person ended the run: with its kill switch, by cancelling its job, or with an action of trainmon-tui.

    Defaults: a deliberate end is information, not an alarm
    """

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
            advice=f"no action if that was intended; to continue, {how_to_requeue(state, run)}",
            since=_ended_at(state, run, queue),
            fires_at_once=run.stop is None or run.stop.is_named,
            person=True,
        )


class Finished(EndRule, frozen=True, kw_only=True):
    """The run has ended at its target step. It is a warning if its evaluation failed.

    Defaults: our choice
    """

    for_: Duration = 45.0
    """How long to wait for the end of the log, which may show that the evaluation failed."""
    new_for: Duration = 43_200.0
    """A daemon that starts after the event still reports it, until this long after the last step."""

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
            advice=how_to_restart(state, run) if has_failed else "",
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
    goal, current = run.target_step, None if wandb is None else wandb.current
    by_wandb = None if current is None else metric_names.step_of(current)
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
    """The open alert that a person ended the run, from before a restart of this program, unless its cause shows that
    nobody did."""
    alert, ended = open_alert(state, RunStopped.name, f"run:{run.name}"), _ended_at(state, run, queue)
    if alert is None or ended is None or abs(alert.since - ended) > 60.0:
        return None
    return None if is_by_a_person(_end_in_ledger(state, run)) is False else alert
