"""Rules about the jobs of a run: not scheduled, no next job queued, time limit near."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, ago, is_answering
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import LIVING, UNKNOWN, RunRule, present_in, queue_in, slurm_source, waiting_in
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.runs import needed_to_save, saves_on, stops_by, target, where
from trainmon.lib import Instant, counted, duration
from trainmon.model import Finding, Job, Run, State
from trainmon.slurm import is_permanent, waiting_reason


class JobRule(RunRule, frozen=True, kw_only=True):
    """Needs only Slurm."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return slurm_source(state, run)


class NotScheduled(JobRule, frozen=True, kw_only=True):
    """No job of the run runs or waits and nothing says that the run is complete, or the waiting job will never
    start."""

    name: ClassVar[str] = "not-scheduled"
    origin: ClassVar[str] = "BLOOM's watchdog: neither running nor scheduled to run"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: four polls of the queue."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        job = waiting_in(state, run) if run.verdict == "queued" else None
        if job is not None and is_permanent(job.reason) and job.reason != "JobHeldUser":
            yield self.finding(
                state,
                run,
                "warning",
                f"{run.name} is not scheduled: job {job.id} will not start by itself: {waiting_reason(job, now)}",
                evidence=(f"{job.state}, {job.reason}" + (f", {job.dependency}" if job.dependency else ""),),
                advice=f"C cancels it: trainmon-tui cancel {run.name}; {advice.queues(state, run)}",
            )
        source = state.sources.get(f"slurm:{run.spec.cluster}")
        if run.spec.found or run.verdict not in UNKNOWN or not (run.spec.job or run.jobs) or not is_answering(source):
            return
        jobs = (state.jobs[key] for key in run.jobs if key in state.jobs)
        if any(one.gone_at is None and one.stage != "ended" for one in jobs):
            return
        goal, step = target(run), run.progress.step
        is_short = step is not None and goal is not None and step < goal
        yield self.finding(
            state,
            run,
            "critical" if is_short else "warning",
            f"{run.name} is not running or pending: no Slurm job named {run.spec.job or run.name}; {run.why}",
            evidence=(f"its last known progress is {where(run.progress)}",) if step is not None else (),
            advice=f"{advice.queues(state, run)}; if it is complete, set target_step, or remove its [[run]] from "
            "the config",
        )


class NoJobQueued(JobRule, frozen=True, kw_only=True):
    """The job of a run ends before the run is complete, and no other job waits behind it. This needs a `script`, an
    array, jobs that were queued one behind the other, or a target that cannot be reached before the job ends. Other
    jobs may be meant to end."""

    name: ClassVar[str] = "no-job-queued"
    origin: ClassVar[str] = "BLOOM's on-call rule: more than one job is always queued"
    needs_for: ClassVar[bool] = True

    wanted: int = 1
    """This many jobs must wait behind the running one."""
    within: Duration = 43_200.0
    """The alert fires this long before the end of the job: a night."""
    for_: Duration = 600.0
    keep_firing_for: Duration = 120.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        job, count = present_in(state, run), run.queued_behind
        if job is None or job.ends_at is None or count is None or not _continues(state, run, job):
            return
        left = job.ends_at - now
        if count >= self.wanted or left > self.within or _ends_in_time(run, job):
            return
        waiting = f"only {counted(count, 'job')} wait{'s' if count == 1 else ''}" if count else "no job waits"
        needs = "" if run.eta_at is None else f", but the run needs {duration(run.eta_at - now)} more"
        limit = f"job {job.id} is {job.state}, time limit {duration(job.time_limit_s)}" if job.time_limit_s else ""
        yield self.finding(
            state,
            run,
            "warning",
            f"{waiting} behind job {job.id} of {run.name}, which ends in {duration(max(0.0, left))}{needs}",
            evidence=(limit,) if limit else (),
            advice=advice.queues(state, run),
        )


class TimeLimitNear(JobRule, frozen=True, kw_only=True):
    """The job ends before the run could save once more, and there is no sign that it saves before exiting."""

    name: ClassVar[str] = "time-limit-near"
    origin: ClassVar[str] = "Bekman: the grace is at least twice one iteration and one save"

    times: float = 2.0
    """The alert fires if less time is left than this many times one step plus one save."""
    at_least: Duration = 300.0
    """The alert also fires if less time than this is left."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        job = present_in(state, run)
        if job is None or job.ends_at is None or run.verdict not in LIVING or _ends_in_time(run, job):
            return
        left, known = job.ends_at - now, needed_to_save(run)
        needed = max(self.at_least, self.times * (known or 0.0) / 2)
        checkpoints, exiting_at = run.checkpoints, run.memory.exiting_at
        saved = None if checkpoints is None else checkpoints.committed
        saved_at = None if saved is None else saved.at
        is_exiting = exiting_at is not None and exiting_at >= (job.started_at or 0.0)
        has_saved = saved_at is not None and saved_at >= job.ends_at - needed
        is_exiting |= (run.kill is not None and bool(run.kill.exists)) or stops_by(run, job.ends_at, now)
        if left > needed or is_exiting or has_saved:
            return
        why = "" if known is None else f" (saving once more may need {duration(known)})"
        lost = steps_at_risk(run)
        risk = f"; {counted(lost, 'step')} would be lost" if lost else ""
        step = "" if saved is None or saved.step is None else f" of step {saved.step:,}"
        exits = "its trainer saves only on the SIGTERM with which Slurm ends it"
        if not saves_on(run, "TERM", now):
            exits = "no sign that it saves before exiting"
        yield self.finding(
            state,
            run,
            "warning",
            f"job {job.id} of {run.name} ends in {duration(max(0.0, left))}{why}, and {exits}{risk}",
            evidence=()
            if saved_at is None
            else (f"the last checkpoint{step} was committed {ago(now - saved_at)} ago",),
            advice=f"{advice.saves(run)}; make it exit before the limit, by its own setting or with sbatch --signal",
        )


def _continues(state: State, run: Run, job: Job) -> bool:
    """Whether the run should go on in another job. A single job without a target may be a session or a short test."""
    queue = queue_in(state, run)
    last = None if queue is None else queue.ended
    is_chain = last is not None and (job.submitted_at or inf) <= (last.ends_at or 0.0)
    has_script = run.spec.script is not None and not run.spec.found
    is_short = run.eta_at is not None and job.ends_at is not None and run.eta_at > job.ends_at
    return run.verdict not in ("idle", "finished") and (has_script or job.array is not None or is_chain or is_short)


def _ends_in_time(run: Run, job: Job) -> bool:
    """Whether the run will be complete before its job ends."""
    return run.eta_at is not None and job.ends_at is not None and run.eta_at < job.ends_at
