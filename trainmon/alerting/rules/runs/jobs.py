"""Rules about the jobs of a run: not scheduled, no next job queued, time limit near."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, ago, is_seen
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import LIVING, UNKNOWN, RunRule, present_in, queue_in, slurm_source
from trainmon.analysis.runs import needed_to_save, target, where
from trainmon.lib import Instant, Seconds, counted, duration
from trainmon.model import Finding, Job, Run, State
from trainmon.slurm import is_permanent, waiting_reason


class JobRule(RunRule, frozen=True, kw_only=True):
    """Needs only Slurm."""

    unseen_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return slurm_source(state, run)


class NotScheduled(JobRule, frozen=True, kw_only=True):
    """No job of the run runs or waits and nothing says that the run is complete, or the waiting job will never
    start."""

    name: ClassVar[str] = "not-scheduled"
    origin: ClassVar[str] = "BLOOM's watchdog: neither running nor scheduled to run"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: four polls of the queue."""

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict == "queued":
            yield from self._never(state, run, now)
        source = state.sources.get(f"slurm:{run.spec.cluster}")
        if run.spec.found or run.verdict not in UNKNOWN or not (run.spec.job or run.jobs) or not is_seen(source):
            return
        jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
        if any(job.gone_at is None and job.stage != "ended" for job in jobs):
            return
        goal, step = target(run), run.progress.step
        is_short = step is not None and goal is not None and step < goal
        yield self.found(
            state,
            run,
            "critical" if is_short else "warning",
            f"{run.name} is neither running nor scheduled: Slurm lists no job {run.spec.job or run.name}; {run.why}",
            evidence=(f"it was last seen at {where(run.progress)}",) if step is not None else (),
            advice=f"{advice.queues(state, run)}; if it is complete, set target_step, or remove its [[run]] from "
            "the config",
        )

    def _never(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        """Its job waits and will never start by itself. A job that a person holds does not count."""
        queue = queue_in(state, run)
        job = None if queue is None else queue.waiting
        if job is None or not is_permanent(job.reason) or job.reason == "JobHeldUser":
            return
        yield self.found(
            state,
            run,
            "warning",
            f"{run.name} is not scheduled: job {job.id} will not start by itself: {waiting_reason(job, now)}",
            evidence=(f"{job.state}, {job.reason}" + (f", {job.dependency}" if job.dependency else ""),),
            advice=f"C cancels it: trainmon-tui cancel {run.name}; {advice.queues(state, run)}",
        )


class NoJobQueued(JobRule, frozen=True, kw_only=True):
    """The job of a run ends before the run is complete, and no other job waits behind it."""

    name: ClassVar[str] = "no-job-queued"
    origin: ClassVar[str] = "BLOOM's on-call rule: more than one job is always queued"
    needs_for: ClassVar[bool] = True

    wanted: int = 1
    """This many jobs must wait behind the running one."""
    within: Duration = 43_200.0
    """How long before the end of its job the alert fires: a night."""
    for_: Duration = 600.0
    keep_firing_for: Duration = 120.0

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        job = present_in(state, run)
        if job is None or job.ends_at is None or run.queued_behind is None or not _is_chained(state, run, job):
            return
        left = job.ends_at - now
        if run.queued_behind >= self.wanted or left > self.within or _ends_in_time(run, job):
            return
        has = _waits(run.queued_behind)
        done = "" if run.eta_at is None else f", and it needs {duration(run.eta_at - now)} more"
        yield self.found(
            state,
            run,
            "warning",
            f"{has} behind job {job.id} of {run.name}, which ends in {duration(max(0.0, left))}{done}",
            evidence=(f"job {job.id} is {job.state}, time limit {duration(job.time_limit_s or 0.0)}",)
            if job.time_limit_s
            else (),
            advice=advice.queues(state, run),
        )


class TimeLimitNear(JobRule, frozen=True, kw_only=True):
    """The job ends before the run could save once more, and nothing shows that the run saves and exits by itself."""

    name: ClassVar[str] = "time-limit-near"
    origin: ClassVar[str] = "Bekman: the grace is at least twice one iteration and one save"

    times: float = 2.0
    """The time left must be this many times one step and one save."""
    at_least: Duration = 300.0
    """The minimum for the time left. It is also used if no save of the run is known."""

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        job = present_in(state, run)
        if job is None or job.ends_at is None or run.verdict not in LIVING or _ends_in_time(run, job):
            return
        left, known = job.ends_at - now, needed_to_save(run)
        needed = max(self.at_least, self.times * (known or 0.0) / 2)
        if left > needed or self._is_leaving(run, job, needed):
            return
        why = "" if known is None else f" (to save once more it needs {duration(known)})"
        yield self.found(
            state,
            run,
            "warning",
            f"job {job.id} of {run.name} ends in {duration(max(0.0, left))}{why}, and nothing shows that it saves and "
            f"exits by itself{_at_risk(run)}",
            evidence=_last_save(run, now),
            advice=f"{advice.saves(run)}; let it exit before the limit, by its own setting or by sbatch --signal",
        )

    def _is_leaving(self, run: Run, job: Job, needed: Seconds) -> bool:
        """Whether its log says that it exits, or it has just saved."""
        memory = run.memory
        if memory.exiting_at is not None and memory.exiting_at >= (job.started_at or 0.0):
            return True
        saved = None if run.checkpoints is None else run.checkpoints.committed
        is_saved = saved is not None and saved.at is not None and saved.at >= (job.ends_at or 0.0) - needed
        return is_saved or (run.kill is not None and bool(run.kill.exists))


def _waits(count: int) -> str:
    return "no job waits" if not count else f"only {counted(count, 'job')} wait{'s' if count == 1 else ''}"


def _is_chained(state: State, run: Run, job: Job) -> bool:
    """Whether the run should go on in another job. A job that is not in the config may be a session."""
    if run.verdict in ("idle", "finished"):
        return False
    queue = queue_in(state, run)
    return not run.spec.found or job.array is not None or (queue is not None and queue.ended is not None)


def _ends_in_time(run: Run, job: Job) -> bool:
    """Whether the run will be complete before its job ends."""
    return run.eta_at is not None and job.ends_at is not None and run.eta_at < job.ends_at


def _at_risk(run: Run) -> str:
    lost = None if run.checkpoints is None else run.checkpoints.at_risk(run.progress.step)
    return "" if not lost else f"; {counted(lost, 'step')} would be lost"


def _last_save(run: Run, now: Instant) -> tuple[str, ...]:
    saved = None if run.checkpoints is None else run.checkpoints.committed
    if saved is None or saved.at is None:
        return ()
    step = "" if saved.step is None else f" of step {saved.step:,}"
    return (f"the last checkpoint{step} was committed {ago(now - saved.at)} ago",)
