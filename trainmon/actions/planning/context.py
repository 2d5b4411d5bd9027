"""What a plan is made from: the row it was asked for with its run and jobs, what was read just now, who asks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from trainmon.analysis.runs import jobs_of, present, rivals
from trainmon.lib import Instant, Seconds, clean, duration
from trainmon.model import Action, ActionRequest, Cluster, Expected, Job, Refusal, Run, SchedulerNode, State, Switch

Kind = Literal["kill", "save"]


JOB_VERBS = frozenset({"requeue", "cancel", "hold", "release", "signal", "queue"})
"""Verbs whose operation depends on which job of a run is meant."""


class FileStat(msgspec.Struct, frozen=True, kw_only=True):
    """A switch file as it was just seen; `exists` is null where that cannot be told, and `error` says why."""

    path: str
    exists: bool | None = None
    mark: str = ""
    """Its inode, size, time of change and owner, as the host printed them: whether it is still the same file."""
    armed_at: Instant | None = None
    """Its time of change, by the host's clock."""
    by: str | None = None
    text: str = ""
    """Its first line."""
    error: str | None = None


class Readback(msgspec.Struct, frozen=True, kw_only=True):
    """What was read just now, for one plan or one check before an act."""

    at: Instant = 0.0
    jobs: Mapping[str, Job] = {}
    """By key."""
    nodes: Mapping[str, SchedulerNode] = {}
    """By name."""
    gone: frozenset[str] = frozenset()
    """Keys of jobs that the scheduler does not know any more, and `CLUSTER/NODE` of nodes that it does not know."""
    steps: Mapping[str, tuple[str, ...]] = {}
    """The steps of a job that run now, by its key."""
    switches: Mapping[str, FileStat] = {}
    """By `HOST:PATH`."""
    errors: Mapping[str, str] = {}
    """Why something could not be read, in a sentence: by a job's key, by `HOST:PATH`, by `CLUSTER/NODE`, or by a
    cluster for its queue."""


@dataclass(frozen=True, slots=True)
class LookAt:
    """What is to be read on one host before a plan or an act."""

    host: str
    cluster: str
    users: tuple[str, ...] | None = None
    """Whose queue; empty for one's own, None for none."""
    jobs: tuple[tuple[str, str], ...] = ()
    """Keys of jobs, and what scontrol is asked for."""
    steps: tuple[tuple[str, str], ...] = ()
    """The same, of those whose steps are wanted."""
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """Whose states the scheduler is asked for."""


class Actor(msgspec.Struct, frozen=True):
    """Who asks, and on which machine."""

    who: str
    from_host: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan says of one row."""

    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    typed: str | None = None
    because: str = ""
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanContext:
    """One row that something is asked of."""

    ask: ActionRequest
    state: State
    fresh: Readback
    actor: Actor
    now: Instant
    subject: str
    cluster: str
    run: Run | None
    jobs: tuple[Job, ...]
    """Its run's in order (see joining.jobs_of), or the one job that was asked for; as fresh as was read."""

    @property
    def job(self) -> Job | None:
        """The one that is meant: it runs now, else it waits first, else it ended last."""
        return self.jobs[0] if self.jobs else None

    @property
    def waiting(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.stage == "waiting" and job.gone_at is None)

    @property
    def known(self) -> Cluster | None:
        return self.state.clusters.get(self.cluster)

    @property
    def name(self) -> str:
        """Its run's name, else its job's."""
        job = self.job
        return self.run.name if self.run is not None else job.name if job is not None else self.subject

    def refused(self, why: str, hint: str = "") -> Answer:
        return Answer(refusals=(Refusal(subject=self.subject, why=why, hint=hint),))

    def ago(self, at: Instant | None) -> str:
        return "" if at is None else f"{duration(max(0.0, self.now - at))} ago"

    def switch(self, kind: Kind) -> Switch | None:
        """The run's switch, as fresh as was read."""
        if self.run is None:
            return None
        path = self.run.spec.kill_switch if kind == "kill" else self.run.spec.save_switch
        known = self.run.kill if kind == "kill" else self.run.save
        host = self.host
        sight = None if path is None or host is None else self.fresh.switches.get(f"{host}:{path}")
        if path is None or sight is None:
            return known
        skew = clock_skew(self.state, sight, known)
        at = None if sight.armed_at is None else sight.armed_at - skew
        return Switch(
            path=path, exists=sight.exists, armed_at=at, by=sight.by, why=sight.text or None, error=sight.error
        )

    def unread(self, path: str | None) -> str | None:
        """Why a switch could not be looked at just now."""
        return self.fresh.errors.get(f"{self.host}:{path}")

    def unread_kill(self) -> str | None:
        """Why it cannot be told whether the run's kill switch is armed."""
        path = None if self.run is None else self.run.spec.kill_switch
        known = self.switch("kill")
        return None if path is None else self.unread(path) or (known.error if known is not None else None)

    @property
    def host(self) -> str | None:
        """Where its commands run and its files are read: the login host, else one that answers."""
        login = [self.known.login] if self.known is not None else []
        reader = [self.run.log.host] if self.run is not None and self.run.log is not None else []
        nodes = self.run.spec.nodes if self.run is not None else ()
        hosts = [*login, *reader, *nodes]
        up = [host for host in hosts if self._answers(host)]
        return up[0] if up else hosts[0] if hosts else None

    def _answers(self, host: str) -> bool:
        source = self.state.sources.get(f"node:{host}")
        return source is not None and source.health == "ok"

    @property
    def step_s(self) -> Seconds | None:
        """How often its log shows that it goes on."""
        return None if self.run is None else self.run.progress.cadence_s

    @property
    def silent_s(self) -> Seconds | None:
        """For how long no step has come."""
        if self.run is None or self.run.progress.at is None:
            return None
        return max(0.0, self.now - self.run.progress.at)


def clock_skew(state: State, sight: FileStat, known: Switch | None) -> Seconds:
    """The host's clock minus ours, from a file that both have dated; 0 where nothing tells."""
    if known is None or known.armed_at is None or sight.armed_at is None or not known.exists:
        return 0.0
    return round(sight.armed_at - known.armed_at)


def case_of(
    ask: ActionRequest, state: State, fresh: Readback, actor: Actor, now: Instant, subject: str
) -> PlanContext | Refusal:
    """Find what is meant by a row's name: a run, or a job by its key."""
    jobs = {key: job for key, job in {**state.jobs, **fresh.jobs}.items() if key not in fresh.gone}
    run = state.runs.get(subject)
    if run is not None:
        own = jobs_of(run.spec, jobs.values())
        several = rivals(own) if ask.verb in JOB_VERBS else ()
        if several:
            return _undecided(run, several)
        return PlanContext(ask, state, fresh, actor, now, subject, run.spec.cluster, run, own)
    job = jobs.get(subject)
    if job is not None:
        run = next((one for one in state.runs.values() if subject in one.jobs), None)
        return PlanContext(ask, state, fresh, actor, now, subject, job.cluster, run, (job,))
    if subject in fresh.gone:
        cluster, _, number = subject.rpartition("/")
        whole = next((job for job in fresh.jobs.values() if job.cluster == cluster and job.has_number(number)), None)
        if whole is not None:
            return Refusal(subject=subject, why=f"{number} is a part of job {whole.id}", hint=f"name {whole.id}")
        if subject in state.jobs:
            return Refusal(subject=subject, why=f"Slurm no longer knows job {number}: it has ended")
        return Refusal(subject=subject, why=f"Slurm knows no job {number}: it ended long ago, or never was")
    if subject in fresh.errors:
        return Refusal(subject=subject, why=fresh.errors[subject])
    return Refusal(subject=subject, why=f"no run and no job is called {clean(subject, 100)}")


def _undecided(run: Run, jobs: Sequence[Job]) -> Refusal:
    """That a run's name stands for several jobs: another's, or another training, might be the one that is hit."""
    told = " and ".join(f"{job.id} ({job.user or 'unknown'}, {job.state})" for job in jobs[:8])
    why = f"{len(jobs)} jobs may be meant by {run.name}: {told}"
    hint = "name one by its id; log, nodes or user in the [[run]] tell them apart"
    return Refusal(subject=run.name, why=why, hint=hint)


def foreign_warning(case: PlanContext, job: Job) -> tuple[str, ...]:
    if case.known is None or case.known.may_operate or job.user in ("", case.known.me):
        return ()
    return (f"It is {job.user}'s: Slurm refuses this to all but {job.user} and its operators.",)


def as_seen(case: PlanContext, job: Job, *, absent: bool = False, needs_slurm: bool = True) -> Expected:
    """What must still hold of a job when it is done, and of the kill switch where it must be `absent`."""
    path = case.run.spec.kill_switch if case.run is not None and absent else None
    return Expected(
        id=job.id,
        submitted_at=job.submitted_at,
        stages=(job.stage,) if job.stage != "unknown" else (),
        user=job.user or None,
        restarts=job.restarts,
        switch_absent=path if path is not None and case.unread_kill() is None else None,
        needs_slurm=needs_slurm,
    )


def current(case: PlanContext) -> Job | None:
    """The job that runs now."""
    return present(case.jobs)


def unknown_to_slurm(case: PlanContext, job: Job | None) -> Answer | None:
    """Refused where the scheduler does not say what is true now."""
    if job is not None and job.key in case.fresh.jobs:
        return None
    error = case.fresh.errors.get(job.key) if job is not None else None
    error = error or case.fresh.errors.get(case.cluster)
    if error is not None:
        return case.refused(error, "nothing is known of its jobs until Slurm answers: nothing is done to them")
    source = case.state.sources.get(f"slurm:{case.cluster}")
    if source is None or source.health == "off":
        return case.refused(f"no Slurm is known for {case.cluster}")
    if job is None:
        return case.refused(f"no job of {case.name} is known", "look at the queue (pane 7)")
    if source.health == "down" or source.seen_at is None:
        words = source.error or "Slurm has not answered yet"
        return case.refused(words, "nothing is known of its jobs until Slurm answers: nothing is done to them")
    if job.gone_at is not None:
        return case.refused(f"job {job.id} is no longer in the queue (since {case.ago(job.gone_at)})")
    return None
