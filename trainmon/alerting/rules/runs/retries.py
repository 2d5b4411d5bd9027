"""Rules about the attempts of a run: automatic retries, a retry storm, a resume from the wrong checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import RunRule, slurm_source, tail
from trainmon.analysis.explanation import resume_of
from trainmon.analysis.retries import (
    STORM,
    TOO_LATE,
    RetryDecision,
    automatic,
    awaits_config,
    by_run,
    decide,
    in_vain,
    is_automatic,
    is_on_purpose,
    obstacle,
)
from trainmon.lib import Instant, counted, duration
from trainmon.model import Attempt, Finding, Record, Run, State


class AttemptRule(RunRule, frozen=True, kw_only=True):
    """Needs what reports the attempts: Slurm, if the run has jobs."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return slurm_source(state, run)

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        attempts = by_run(state.attempts.values()) if state.attempts else {}
        for run in state.runs.values():
            if run.name in attempts:
                yield from self.check_attempts(state, run, attempts[run.name], now)

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        """The findings about a run with these attempts, the newest last."""
        raise NotImplementedError


class AutoRequeued(AttemptRule, frozen=True, kw_only=True):
    """An attempt has ended early, and `auto_requeue` is on or suggests: the run was requeued, or is not, or may be.
    The alert says why."""

    name: ClassVar[str] = "auto-requeue"
    origin: ClassVar[str] = "our choice: nobody is surprised by an automatic action"

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
        decision = decide(ended, state.attempts.values(), run.spec.retry) if now - at <= self.new_for else None
        if decision is None or is_on_purpose(decision.cause) or (record is None and ended is not attempts[-1]):
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
            advice=advice.restarts(state, run) if record is None else "trainmon-tui actions lists what was done",
            since=self.first_reported(state, run, at, now, 30.0, lambda one: one.since >= (ended.started_at or 0.0)),
            event=True,
            fires_at_once=True,
        )


def _done(record: Record) -> str | None:
    """What came of an automatic start; None while it is done."""
    what = "evaluated again" if record.action.verb == "evaluate" else "requeued"
    if record.status == "done":
        return f"was {what} automatically: {record.action.why}"
    is_open = record.status == "asked"
    return None if is_open else f"could not be {what} automatically ({record.outcome}): {record.action.why}"


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
    follows."""

    name: ClassVar[str] = "retry-storm"
    origin: ClassVar[str] = "NVRx: at most 3 cycles without progress; NeMo #3390: jobs replayed the same 10,000 steps"

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
            advice=f"find the cause before the next attempt; {advice.cancels(run)}",
        )


def _line(attempt: Attempt) -> str:
    first = "?" if attempt.first_step is None else attempt.first_step
    steps = "no step" if attempt.last_step is None else f"steps {first} to {attempt.last_step}"
    which = f"restart {attempt.restart}" if attempt.restart is not None else attempt.attempt_id
    return f"{which}: {steps}, {attempt.cause and attempt.cause.cause}"


class WrongResume(AttemptRule, frozen=True, kw_only=True):
    """The running attempt has not resumed from the last committed checkpoint of the attempt before it."""

    name: ClassVar[str] = "wrong-resume"
    origin: ClassVar[str] = (
        "Brooks: resume from the last committed checkpoint; NeMo #3390: two jobs resumed from an older one"
    )

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
