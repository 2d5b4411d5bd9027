"""Rules about the jobs and switches of a run."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import ClassVar

from trainmon.actions.verification.effects import CLOCK_TOLERANCE, COMMIT_AT_LEAST, COMMIT_SAVES
from trainmon.alerting.rules.base import Duration, Unknown, ago, is_answering
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import (
    LIVING,
    SILENT,
    UNKNOWN,
    RunRule,
    present_in,
    queue_in,
    slurm_source,
    waiting_in,
)
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.runs import needed_to_save, patience, saves_on, stops_by, target, was_withdrawn, where
from trainmon.lib import Instant, counted, duration
from trainmon.model import Finding, Job, Run, State, Switch, verdict_text
from trainmon.slurm.reasons import is_permanent, waiting_reason

# ---- rules about the jobs of a run -----------------------------------------------------------------------------------


class JobRule(RunRule, frozen=True, kw_only=True):
    """Needs only Slurm."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return slurm_source(state, run)


class NotScheduled(JobRule, frozen=True, kw_only=True):
    """No job of the run is running or pending and nothing shows that the run is complete, or its pending job will never
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
        is_unclear = not run.spec.found and run.verdict in UNKNOWN and bool(run.spec.job or run.jobs)
        if not is_unclear or not is_answering(state, f"slurm:{run.spec.cluster}"):
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
    """The job of a run ends before the run is complete, and no other job is pending behind it. The rule applies to runs
    with a `script` or an array, to runs whose jobs were queued one behind the other, and to runs whose target cannot be
    reached before the job ends."""

    name: ClassVar[str] = "no-job-queued"
    origin: ClassVar[str] = "BLOOM's on-call rule: more than one job is always queued"
    needs_for: ClassVar[bool] = True

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


# ---- rules about switch files ----------------------------------------------------------------------------------------

BUSY = frozenset({"evaluating", "saving"})
"""Verdicts of a run that reads no switch now, because it does so between steps."""


class SwitchRule(RunRule, frozen=True, kw_only=True):
    """Needs the host that reads the files of the run."""

    by_age: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = frozenset()

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        """The host that reads its files."""
        if run.log is not None and (name := f"node:{run.log.host}") in state.sources:
            return (name,)
        cluster = state.clusters.get(run.spec.cluster)
        host = run.checkpoints.host if run.checkpoints is not None else None if cluster is None else cluster.login
        return (f"node:{host}",) if f"node:{host}" in state.sources else ()

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        if (switch := self.switch(run)) is None:
            return
        if switch.exists and run.verdict in BUSY:
            yield self.unknown(run, f"{run.name} is {verdict_text(run.verdict)}, and ignores its switches meanwhile")
        elif not switch.is_dangling and (switch.error is not None or switch.exists is None):
            why = switch.error or "its host does not report it"
            yield self.unknown(run, f"{switch.path} cannot be seen: {why}")
        yield from self.check_switch(state, run, switch, now)

    def switch(self, run: Run) -> Switch | None:
        """The switch file of the run that the rule is about."""
        raise NotImplementedError

    def check_switch(self, state: State, run: Run, switch: Switch, now: Instant) -> Iterator[Finding]:
        """The findings about a switch file of a run."""
        raise NotImplementedError


class KillSwitchLeft(SwitchRule, frozen=True, kw_only=True):
    """The kill switch is still armed: the next attempt would end at once, or the running one ignores it."""

    name: ClassVar[str] = "kill-switch-left"
    origin: ClassVar[str] = "IDEFICS and BLOOM: a forgotten kill switch ends one array task after the other"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    after: Duration = 900.0
    """The alert fires this long after the switch was armed. A trainer may take minutes to save and exit."""

    def switch(self, run: Run) -> Switch | None:
        return run.kill

    def check_switch(self, state: State, run: Run, kill: Switch, now: Instant) -> Iterator[Finding]:
        if not kill.exists or kill.armed_at is None or run.verdict in BUSY or now - kill.armed_at < self.after:
            return
        waiting, is_running = waiting_in(state, run), run.verdict in LIVING | SILENT
        effect = "its next attempt will end as soon as it starts"
        if is_running:
            effect = "and it has not ended: its trainer ignores it"
        elif waiting is not None:
            effect = f"job {waiting.id} is pending, and will end as soon as it starts"
        yield self.finding(
            state,
            run,
            "info" if waiting is None and not is_running else "warning",
            f"the kill switch of {run.name} has been armed for {ago(now - kill.armed_at)}{_by(kill)}; {effect}",
            evidence=(kill.path, *((kill.why,) if kill.why else ())),
            advice=kill.removal(f"U removes it: trainmon-tui unkill {run.name}")
            + (f"; C cancels the job: trainmon-tui cancel {run.name}" if is_running else ""),
            since=kill.armed_at,
        )


class SaveSwitchIgnored(SwitchRule, frozen=True, kw_only=True):
    """The trainer did not consume the save switch, or consumed it and committed no checkpoint."""

    name: ClassVar[str] = "save-switch-ignored"
    origin: ClassVar[str] = (
        "trainers read the switch at every iteration: ten iterations or 10m; a save may take twice the usual, or 15m"
    )
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN | {"starting"}

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a trainer does not read it during an evaluation, which
    may just have ended."""
    untaken: Duration = 600.0
    """How long the switch may remain: this long, or ten usual step intervals of the run if that is longer."""
    unsaved: Duration = COMMIT_AT_LEAST
    """How long a checkpoint may take afterwards: this long, or twice the usual save time if that is longer."""

    def switch(self, run: Run) -> Switch | None:
        return run.save

    def check_switch(self, state: State, run: Run, save: Switch, now: Instant) -> Iterator[Finding]:
        if run.verdict not in (LIVING | SILENT) - BUSY:
            return
        text = self._untaken(run, save, now) if save.exists else self._unsaved(state, run, save, now)
        if text is None:
            return
        yield self.finding(
            state,
            run,
            "warning",
            text,
            evidence=(save.path, *((save.why,) if save.why else ())),
            advice="see whether its trainer reads that path, and look at its log (key 4); "
            + save.removal(f"U removes the switch: trainmon-tui unsave {run.name}")
            + f"; T signals its trainer: trainmon-tui signal {run.name}",
            since=save.armed_at if save.exists else save.taken_at,
        )

    def _untaken(self, run: Run, save: Switch, now: Instant) -> str | None:
        limit = max(self.untaken, 10 * (run.progress.cadence_s or 0.0))
        if save.armed_at is None or now - save.armed_at < limit:
            return None
        quiet = 0.0 if run.progress.at is None else now - run.progress.at
        why = f"; there was no step for {ago(quiet)}" if quiet > patience(run) else ""
        armed = f"has been armed for {ago(now - save.armed_at)}{_by(save)}"
        return f"the save switch of {run.name} {armed}, and its trainer has not consumed it{why}"

    def _unsaved(self, state: State, run: Run, save: Switch, now: Instant) -> str | None:
        known, taken_at = run.checkpoints, save.taken_at
        if taken_at is None or known is None or known.error is not None:
            return None
        has_saved = any(
            (one.is_whole or one.state == "unknown") and (one.at or 0.0) >= taken_at - CLOCK_TOLERANCE
            for one in known.list
        )
        limit = max(self.unsaved, COMMIT_SAVES * (known.save_s or 0.0))
        if was_withdrawn(run, state) or has_saved or now - taken_at < limit:
            return None
        last = known.committed
        step = "" if last is None or last.step is None else f"; the last one is of step {last.step:,}"
        return f"{run.name} consumed its save switch {ago(now - taken_at)} ago, but committed no checkpoint{step}"


def _by(switch: Switch) -> str:
    return f" by {switch.by}" if switch.by else ""
