"""Rules about the jobs of a run, and about its runs of W&B. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, Unknown, is_answering
from trainmon.alerting.rules.runs.base import (
    BETWEEN,
    LIVING,
    UNKNOWN,
    JobRule,
    RunRule,
    how_to_queue,
    how_to_save,
    present_in,
    queue_in,
    waiting_in,
    wandb_source,
)
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.runs import needed_to_save, saves_on, stops_by, where
from trainmon.analysis.wandb import are_separate, how_it_ended, label, shared_checkpoints
from trainmon.lib import Instant, Seconds, ago, counted, duration
from trainmon.model import OVER, Finding, Job, Run, State, Wandb, WandbRun, verdict_text
from trainmon.slurm.reasons import is_permanent, waiting_reason

# ---- rules about the jobs of a run -----------------------------------------------------------------------------------


class NotScheduled(JobRule, frozen=True, kw_only=True):
    """No job of the run is running or pending and nothing shows that the run is complete, or its pending job will never
    start.

    Defaults: BLOOM's watchdog: neither running nor scheduled to run
    """

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
                advice=f"C cancels it: trainmon-tui cancel {run.name}; {how_to_queue(state, run)}",
            )
        is_unclear = not run.spec.found and run.verdict in UNKNOWN and bool(run.spec.job or run.jobs)
        if not is_unclear or not is_answering(state, f"slurm:{run.spec.cluster}"):
            return
        jobs = (state.jobs[key] for key in run.jobs if key in state.jobs)
        if any(one.gone_at is None and one.stage != "ended" for one in jobs):
            return
        goal, step = run.target_step, run.progress.step
        is_short = step is not None and goal is not None and step < goal
        yield self.finding(
            state,
            run,
            "critical" if is_short else "warning",
            f"{run.name} is not running or pending: no Slurm job named {run.spec.job or run.name}; {run.why}",
            evidence=(f"its last known progress is {where(run.progress)}",) if step is not None else (),
            advice=f"{how_to_queue(state, run)}; if the run is complete, set target_step, or remove its [[run]] from "
            "the config",
        )


class NoJobQueued(JobRule, frozen=True, kw_only=True):
    """The job of a run ends before the run is complete, and no other job is pending behind it. The rule applies to runs
    with a `script` or an array, to runs whose jobs were queued one behind the other, and to runs whose target cannot be
    reached before the job ends.

    Defaults: BLOOM's on-call rule: more than one job is always queued
    """

    needs_for: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = BETWEEN
    """Whether the run is complete before its job ends is only known of one that makes steps."""

    wanted: int = 1
    """This many jobs must be pending behind the running one."""
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
        waiting = (
            f"only {counted(count, 'job')} {'is' if count == 1 else 'are'} pending" if count else "no job is pending"
        )
        needs = "" if run.eta_at is None else f", but the run needs {duration(run.eta_at - now)} more"
        limit = f"job {job.id} is {job.state}, time limit {duration(job.time_limit_s)}" if job.time_limit_s else ""
        yield self.finding(
            state,
            run,
            "warning",
            f"{waiting} behind job {job.id} of {run.name}, which ends in {duration(max(0.0, left))}{needs}",
            evidence=(limit,) if limit else (),
            advice=how_to_queue(state, run),
        )


class TimeLimitNear(JobRule, frozen=True, kw_only=True):
    """The job ends before the run could save once more, and there is no sign that it saves before exiting.

    Defaults: Bekman: the grace is at least twice one iteration and one save
    """

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
        exits = (
            "and its trainer saves only on the SIGTERM with which Slurm ends it"
            if saves_on(run, "TERM", now)
            else "with no sign that it saves before exiting"
        )
        yield self.finding(
            state,
            run,
            "warning",
            f"job {job.id} of {run.name} ends in {duration(max(0.0, left))}{why}, {exits}{risk}",
            evidence=()
            if saved_at is None
            else (f"the last checkpoint{step} was committed {ago(now - saved_at)} ago",),
            advice=f"{how_to_save(run)}; make it exit before the limit, by its own setting or with sbatch --signal",
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


# ---- rules about W&B -------------------------------------------------------------------------------------------------

LOST = ("waiting", "overdue")

SHUTDOWN: Seconds = 20.0
"""A run that shuts down may send heartbeats for this long beside the next one. Two that are active for longer have held
the rule's `for` before W&B was polled."""


class WandbRule(RunRule, frozen=True, kw_only=True):
    """Needs only W&B."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()
    reads = (wandb_source,)

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        if run.wandb is None:
            yield self.unknown(run, "no data from W&B yet")
        else:
            yield from self.check_wandb(state, run, run.wandb, now)

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding | Unknown]:
        """The findings about a run that W&B knows."""
        raise NotImplementedError


class WandbSeveralActive(WandbRule, frozen=True, kw_only=True):
    """Several W&B runs are active where exactly one is expected: critical if two of them write the same checkpoints.

    Defaults: Linum: exactly one active run in a group; anything else is an error
    """

    needs_for: ClassVar[bool] = True

    for_: Duration = 15.0
    """How long the condition must hold before the alert fires: the previous run may still be shutting down."""

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding]:
        if wandb.phase != "several":
            return
        known = {one.id: one for one in wandb.runs}
        active = [known[name] for name in wandb.active if name in known]
        shared = shared_checkpoints(active, run.checkpoints)
        newest = max((one.created_at for one in active if one.created_at is not None), default=None)
        pages = tuple(f"{label(one)}: {one.url or one.path}" for one in active[:10])
        yield self.finding(
            state,
            run,
            "warning" if shared is None else "critical",
            f"W&B of {run.name}: {wandb.why}" + ("" if shared is None else "; they write the same checkpoints"),
            evidence=pages if shared is None else (shared, *pages),
            advice="end the wrong one (key 7, C cancels its job), or give each its own W&B group",
            since=wandb.since,
            fires_at_once=newest is not None and now - newest >= max(self.for_, SHUTDOWN),
        )


class WandbRunCrashed(WandbRule, frozen=True, kw_only=True):
    """One of several active W&B runs has crashed or sends no heartbeat any more, and another one is still active.

    Defaults: our choice
    """

    new_for: Duration = 900.0
    """A daemon that starts after the event still reports it, until this long after the last heartbeat."""

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding]:
        crashed = _crashed_beside(wandb)
        if crashed is None or crashed.heartbeat_at is None or now - crashed.heartbeat_at > self.new_for:
            return
        known = {one.id: one for one in wandb.runs}
        others = ", ".join(label(known[name]) for name in wandb.active[:3])
        yield self.finding(
            state,
            run,
            "warning",
            f"W&B of {run.name}: of several active runs, {label(crashed)} {how_it_ended(crashed)}; "
            f"{others} {'is' if len(wandb.active) == 1 else 'are'} still active",
            evidence=(f"{label(crashed)}: {crashed.url or crashed.path}",),
            advice="if it was the wrong one, there is nothing to do; otherwise end the other one and start it again",
            since=self.first_reported(
                state, run, crashed.heartbeat_at, now, 30.0, lambda one: f" {label(crashed)} " in one.summary
            ),
            event=True,
            fires_at_once=True,
        )


def _crashed_beside(wandb: Wandb) -> WandbRun | None:
    """The run that ended last of those that trained beside the followed one, if it did not end regularly."""
    current = wandb.current
    if current is None or current.id not in wandb.active:
        return None
    ended = [
        one
        for one in wandb.runs
        if one.id not in wandb.active and one.state not in ("finished", "pending") and are_separate(one, current)
    ]
    return max(ended, key=lambda one: one.heartbeat_at or 0.0, default=None)


class WandbHeartbeatLost(WandbRule, frozen=True, kw_only=True):
    """W&B receives no heartbeat from the run any more, and there is no other sign that the run has ended.

    Defaults: W&B's server gives up after 5m; a lost heartbeat does not mean an end
    """

    needs_for: ClassVar[bool] = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires: a network failure of some minutes is not a fault of the
    run."""

    def check_wandb(self, state: State, run: Run, wandb: Wandb, now: Instant) -> Iterator[Finding | Unknown]:
        if wandb.phase not in LOST or run.verdict in OVER | {"queued"}:
            return
        is_going = run.verdict in LIVING
        if not is_going and not (wandb.phase == "overdue" and run.verdict in UNKNOWN | {"starting"}):
            yield self.unknown(run, f"W&B receives no heartbeat, and {run.name} is {verdict_text(run.verdict)}")
            return
        also = (
            "; its log shows that training continues" if is_going else f"; it is {verdict_text(run.verdict)}: {run.why}"
        )
        current = wandb.current
        yield self.finding(
            state,
            run,
            "warning",
            f"W&B receives no heartbeat from {run.name}: {wandb.why}{also}",
            evidence=() if current is None else (f"{label(current)}: {current.url or current.path}",),
            advice="check whether its nodes reach W&B (see its log, key 4); its data stays on the node and can "
            "be sent later: wandb sync",
            since=wandb.since,
        )
