"""What a plan is made from: the requested row with its run and jobs, a fresh reading, and the actor. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from trainmon.actions.planning.readback import Readback
from trainmon.actions.verbs import VERB
from trainmon.analysis.runs import jobs_of, present, rivals
from trainmon.lib import Instant, clean, duration
from trainmon.model import (
    Action,
    ActionRequest,
    Checkpoints,
    Cluster,
    Expected,
    Job,
    Refusal,
    Run,
    Source,
    State,
    Switch,
)

SwitchKind = Literal["kill", "save"]

NO_ANSWER_HINT = "its jobs are unknown until Slurm responds: nothing is done to them"


class Actor(msgspec.Struct, frozen=True):
    """The user who requests an action, and the machine."""

    who: str
    from_host: str


class Refused(Exception):
    """Ends the plan of a row."""

    def __init__(self, subject: str, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.refusal = Refusal(subject=subject, why=why, hint=hint)


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one row."""

    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    typed: str = ""
    because: str = ""
    """Why `typed` must be typed. Empty: it need not be."""
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanContext:
    """One requested row, or the requested nodes of one cluster, with all that its plan depends on."""

    request: ActionRequest
    state: State
    readback: Readback
    actor: Actor
    now: Instant
    subject: str
    cluster: str
    run: Run | None
    jobs: tuple[Job, ...]
    """The run's jobs in the order of `jobs_of`, or the one requested job, or those that wait for the nodes. As recent
    as was read."""

    @property
    def job(self) -> Job | None:
        """The job that is meant: the running one, else the first waiting one, else the last that ended."""
        return self.jobs[0] if self.jobs else None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The requested nodes, for a verb of nodes."""
        return tuple(self.subject.split(",")) if VERB[self.request.verb].target == "node" else ()

    @property
    def known_jobs(self) -> Mapping[str, Job]:
        """All jobs by key, as recent as was read, without those that the scheduler no longer knows."""
        return _known_jobs(self.state, self.readback)

    @property
    def running_job(self) -> Job | None:
        return present(self.jobs)

    @property
    def waiting(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.stage == "waiting" and job.gone_at is None)

    @property
    def cluster_info(self) -> Cluster | None:
        return self.state.clusters.get(self.cluster)

    @property
    def slurm(self) -> Source | None:
        return self.state.sources.get(f"slurm:{self.cluster}")

    @property
    def is_silent(self) -> bool:
        """Whether Slurm does not answer, or is not used."""
        return self.slurm is None or self.slurm.health in ("off", "down") or self.slurm.answered_at is None

    @property
    def checkpoints(self) -> Checkpoints | None:
        return None if self.run is None else self.run.checkpoints

    @property
    def name(self) -> str:
        """The run's name, else the job's."""
        return self.run.name if self.run is not None else self.job.name if self.job is not None else self.subject

    @property
    def of_run(self) -> str:
        """The end of a title: ` of video-2b`."""
        return f" of {self.run.name}" if self.run is not None else ""

    def refused(self, why: str, hint: str = "") -> Refused:
        return Refused(self.subject, why, hint)

    def ago(self, at: Instant | None) -> str:
        return "" if at is None else f"{duration(max(0.0, self.now - at))} ago"

    def usual_save_time(self, prefix: str = "") -> str:
        """` (about 90s, as usual)`, or nothing where no save was timed."""
        usual = None if self.checkpoints is None else self.checkpoints.save_s
        return f" ({prefix}about {duration(usual)}, as usual)" if usual else ""

    def switch_path(self, kind: SwitchKind) -> str | None:
        if self.run is None:
            return None
        return self.run.spec.kill_switch if kind == "kill" else self.run.spec.save_switch

    def switch(self, kind: SwitchKind) -> Switch | None:
        """The run's switch, as recent as was read."""
        if self.run is None:
            return None
        path, known = self.switch_path(kind), self.run.kill if kind == "kill" else self.run.save
        stat = self.readback.switches.get(f"{self.host}:{path}")
        if path is None or stat is None:
            return known
        armed_at, skew = stat.armed_at, 0.0
        if armed_at is not None and known is not None and known.armed_at is not None and known.exists:
            skew = round(armed_at - known.armed_at)  # the host's clock minus ours: both have dated the file
        return Switch(
            path=path,
            exists=stat.exists,
            armed_at=None if armed_at is None else armed_at - skew,
            by=stat.by,
            why=stat.text or None,
            error=stat.error,
        )

    def read_error(self, path: str) -> str | None:
        """Why a switch file could not be read just now."""
        return self.readback.errors.get(f"{self.host}:{path}")

    def switch_error(self, kind: SwitchKind) -> str | None:
        """Why it is not known whether a switch of the run is armed."""
        path, switch = self.switch_path(kind), self.switch(kind)
        return None if path is None else self.read_error(path) or (switch.error if switch is not None else None)

    @property
    def kill_switch_warnings(self) -> tuple[str, ...]:
        error, switch = self.switch_error("kill"), self.switch("kill")
        if error is None:
            return ()
        if switch is not None and switch.is_dangling:
            return (f"Its kill switch is {error}.",)
        return (f"It is not known whether its kill switch is armed: {error}.",)

    @property
    def host(self) -> str | None:
        """The host where its commands run and its files are read: the login host, else one that answers."""
        hosts = [self.cluster_info.login] if self.cluster_info is not None else []
        if self.run is not None:
            hosts += [*([self.run.log.host] if self.run.log is not None else []), *self.run.spec.nodes]
        sources = ((host, self.state.sources.get(f"node:{host}")) for host in hosts)
        up = [host for host, source in sources if source is not None and source.health == "ok"]
        return next(iter(up or hosts), None)

    def other_owner_warning(self, job: Job) -> tuple[str, ...]:
        if self.cluster_info is None or self.cluster_info.may_operate or job.user in ("", self.cluster_info.me):
            return ()
        return (f"It is {job.user}'s: only {job.user} and Slurm operators may do this.",)

    def expected(self, job: Job, *, unarmed: bool = False, needs_slurm: bool = True) -> Expected:
        """What must still hold of a job when the action runs; with `unarmed`, also that no kill switch is armed."""
        return Expected(
            id=job.id,
            submitted_at=job.submitted_at,
            stages=(job.stage,) if job.stage != "unknown" else (),
            user=job.user or None,
            restarts=job.restarts,
            switch_absent=self.switch_path("kill") if unarmed and self.switch_error("kill") is None else None,
            needs_slurm=needs_slurm,
        )

    def check_job(self, job: Job | None) -> Job:
        """The job, if its present state is known.

        Raises:
            Refused: when it does not.
        """
        errors, source = self.readback.errors, self.slurm
        if job is not None and job.key in self.readback.jobs:
            return job
        error = (errors.get(job.key) if job is not None else None) or errors.get(self.cluster)
        if error is not None:
            raise self.refused(error, NO_ANSWER_HINT)
        if source is None or source.health == "off":
            raise self.refused(f"no Slurm is known for {self.cluster}")
        if job is None:
            raise self.refused(f"no job of {self.name} is known", "look at the queue (pane 7)")
        if source.health == "down" or source.answered_at is None:
            raise self.refused(source.error or "no data from Slurm yet", NO_ANSWER_HINT)
        if job.gone_at is not None:
            raise self.refused(f"job {job.id} is no longer in the queue (since {self.ago(job.gone_at)})")
        return job

    def armed(self, kind: SwitchKind) -> str:
        """`kill switch, armed 4m ago by ana: “trainmon-tui kill by …”`, or nothing if it is not armed."""
        switch = self.switch(kind)
        if switch is None or not switch.exists:
            return ""
        since = f" {self.ago(switch.armed_at)}" if switch.armed_at is not None else ""
        by = f" by {switch.by}" if switch.by else ""
        return f"{kind} switch, armed{since}{by}" + (f": “{switch.why}”" if switch.why else "")

    def check_unarmed(self, consequence: str) -> None:
        """Check that the run's kill switch is not armed.

        Raises:
            Refused: when it is, with the consequence that an action would have.
        """
        switch = self.switch("kill")
        if switch is not None and switch.exists:
            hint = switch.removal(f"remove it first: U, or trainmon-tui unkill {self.name}")
            raise self.refused(f"{self.armed('kill')}: {consequence}", hint)

    def check_queue(self, job: Job | None) -> None:
        """Check that this job is known, or without one the queue: a new job must wait for those in it.

        Raises:
            Refused: when it is not.
        """
        source = self.slurm
        is_unknown = self.cluster in self.readback.errors or source is None or source.health in ("off", "down")
        if job is not None or is_unknown:
            self.check_job(job or self.job)


def contexts_of(
    request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant
) -> Iterator[PlanContext | Refusal]:
    """The requested rows, and refusals of those that mean nothing or several jobs. The nodes of a cluster are one row,
    because a job has one list of excluded nodes."""
    if VERB[request.verb].target == "node":
        yield from _contexts_of_nodes(request, state, readback, actor, now)
        return
    for subject in dict.fromkeys(request.subjects):
        yield _context_of(request, state, readback, actor, now, subject)


def _context_of(
    request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant, subject: str
) -> PlanContext | Refusal:
    """The row with its run, or with its job by its key. A refusal: it means nothing, or several jobs."""
    jobs = _known_jobs(state, readback)
    run = state.runs.get(subject)
    if run is not None:
        own = jobs_of(run.spec, jobs.values())
        several = rivals(own) if VERB[request.verb].is_of_one_job else ()
        if several:  # another user's job, or another training, might be hit
            named = " and ".join(f"{job.id} ({job.user or 'unknown'}, {job.state})" for job in several[:8])
            hint = "name one by its id; log, nodes or user in the [[run]] tell them apart"
            why = f"{run.name} may mean any of {len(several)} jobs: {named}"
            return Refusal(subject=run.name, why=why, hint=hint)
        return PlanContext(request, state, readback, actor, now, subject, run.spec.cluster, run, own)
    job = jobs.get(subject)
    if job is not None:
        run = next((one for one in state.runs.values() if subject in one.jobs), None)
        return PlanContext(request, state, readback, actor, now, subject, job.cluster, run, (job,))
    if subject not in readback.gone:
        why = readback.errors.get(subject) or f"no run or job is called {clean(subject, 100)}"
        return Refusal(subject=subject, why=why)
    cluster, _, number = subject.rpartition("/")
    for job in readback.jobs.values():
        if job.cluster == cluster and job.has_number(number):
            return Refusal(subject=subject, why=f"{number} is a part of job {job.id}", hint=f"name {job.id}")
    ended = f"Slurm no longer knows job {number}: it has ended"
    unknown = f"Slurm knows no job {number}: it ended long ago or never existed"
    of = next((run.name for run in state.runs.values() if subject in run.jobs), None)
    hint = f"queue another: trainmon-tui queue {of}" if request.verb == "requeue" and of is not None else ""
    return Refusal(subject=subject, why=ended if subject in state.jobs else unknown, hint=hint)


def _known_jobs(state: State, readback: Readback) -> dict[str, Job]:
    return {key: job for key, job in {**state.jobs, **readback.jobs}.items() if key not in readback.gone}


# ---- nodes -----------------------------------------------------------------------------------------------------------

NODE = re.compile(r"\w[\w.-]{0,200}", re.ASCII)

LARGEST_EXCLUSION = 32
"""Waiting jobs that one plan changes: a list that a person can still read."""


def _contexts_of_nodes(
    request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant
) -> Iterator[PlanContext | Refusal]:
    nodes: dict[str, list[str]] = {}
    for name in dict.fromkeys(request.subjects):
        cluster = cluster_of(state, name)
        key, is_known = f"{cluster}/{name}", name in state.nodes or name in state.scheduler_nodes
        if cluster is None:
            yield Refusal(subject=name, why=f"no node is called {clean(name, 100)}")
        elif not is_known and key in readback.gone:
            yield Refusal(subject=name, why=f"Slurm knows no node called {clean(name, 100)}")
        elif not is_known and key in readback.errors:
            yield Refusal(subject=name, why=readback.errors[key])
        else:
            nodes.setdefault(cluster, []).append(name)
    for cluster, names in nodes.items():
        jobs = _waiting_jobs(request, state, readback, cluster, names)
        yield PlanContext(request, state, readback, actor, now, ",".join(names), cluster, None, jobs)


def cluster_of(state: State, node: str) -> str | None:
    """The cluster of a node that is watched or known to its scheduler.

    A node that is neither, as no job of ours runs there now, may still be known to the only scheduler there is."""
    known = state.nodes.get(node) or state.scheduler_nodes.get(node)
    if known is not None:
        return known.cluster
    with_slurm = [name for name in state.clusters if f"slurm:{name}" in state.sources]
    return with_slurm[0] if len(with_slurm) == 1 and NODE.fullmatch(node) else None


def _waiting_jobs(
    request: ActionRequest, state: State, readback: Readback, cluster: str, names: Sequence[str]
) -> tuple[Job, ...]:
    """The waiting jobs of the named run, else of the runs that used the nodes, else all that are ours."""
    known = _known_jobs(state, readback).values()
    waiting = [job for job in known if job.cluster == cluster and job.stage == "waiting" and job.gone_at is None]
    if request.run is not None:
        runs = [state.runs[request.run]] if request.run in state.runs else []
    else:
        runs = [
            run
            for run in state.runs.values()
            if run.spec.cluster == cluster
            and {*run.spec.nodes, *(node for key in run.jobs if key in state.jobs for node in state.jobs[key].nodes)}
            & set(names)
        ]
    of_runs = {key for run in runs for key in run.jobs}
    if request.run is not None or any(job.key in of_runs for job in waiting):
        waiting = [job for job in waiting if job.key in of_runs]
    else:
        me = state.clusters[cluster].me if cluster in state.clusters else None
        waiting = [job for job in waiting if me is None or job.user == me]
    return tuple(waiting[:LARGEST_EXCLUSION])
