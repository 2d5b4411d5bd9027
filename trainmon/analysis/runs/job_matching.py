"""Matches jobs to runs, and finds runs: those in the config, and our own jobs that no config names. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from math import inf

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds
from trainmon.model import ME, Job, JobPart, Run, RunSpec, Source

ENDED_RUNS_STAY: Seconds = 86_400.0
"""How long a run that was found by itself stays after its last job: a night and a morning."""

FOUND_AT_MOST = 200
"""Runs that are found by themselves; who has more names of jobs than this has a sweep, not runs."""

_WITHOUT_PROCESSES = frozenset({"COMPLETING", "CONFIGURING", "POWER_UP_NODE", "STAGE_OUT"})
"""States that count as running: before the first process, and after the last that can be ended."""

_ORDER = {"running": 0, "unknown": 0, "waiting": 1, "ended": 2}


def jobs_of(spec: RunSpec, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs of a run by cluster, job name and user: running, then waiting, then ended."""
    name = spec.job or spec.name
    own = [
        job
        for job in jobs
        if job.name == name
        and job.cluster == spec.cluster
        and spec.user in (None, job.user)
        and is_of_task(job.id, spec)
    ]
    return tuple(sorted(own, key=_order))


def is_of_task(job_id: str | None, spec: RunSpec) -> bool:
    """Whether a run may be this job: of several jobs of a name, each has a run of its own."""
    return job_id not in spec.without if spec.only is None else job_id == spec.only


def owner_of(spec: RunSpec, users: Collection[str], me: str | None) -> str | None:
    """The user whose jobs belong to a configured run.

    Its own `user`, else us if our jobs are watched, else None for any watched user.
    """
    if spec.user not in (None, ME):
        return spec.user
    is_mine = spec.user == ME or not users or ME in users or me in users
    return me or None if is_mine else None


def rivals(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Of a run's jobs those between which its name does not choose: several that train at once, or of several users.
    One that runs and those that wait behind it are no rivals."""
    there = tuple(job for job in jobs if job.gone_at is None and job.stage != "ended")
    training = tuple(job for job in there if holds_nodes(job))
    if len(training) > 1:
        return training
    return there if len({job.user for job in there}) > 1 else ()


def _without_rivals(spec: RunSpec, jobs: Iterable[Job]) -> RunSpec:
    """A configured run without the jobs of its name that have another log or other nodes."""
    training = [job for job in jobs_of(spec, jobs) if holds_nodes(job)]
    by_log = [job for job in training if spec.log and job.stdout and fnmatchcase(job.stdout, spec.log)]
    by_nodes = [job for job in training if set(spec.nodes) & set(job.nodes)]
    for own in (by_log, by_nodes):
        if len(own) == 1:
            return replace(spec, without=tuple(job.id for job in training if job is not own[0]))
    return spec


def _order(job: Job) -> tuple[int, float, float, int]:
    """Running jobs first, the latest start first; then waiting jobs, by Slurm's estimates of their starts, else in the
    order of the queue, to whose end a requeued job goes; then ended jobs, the latest first."""
    order = 2 if job.gone_at is not None else _ORDER[job.stage]
    if order == 1:
        return order, job.starts_at or inf, job.submitted_at or 0.0, job.number
    at = job.started_at if order == 0 else job.ends_at or job.gone_at
    return order, -(at or 0.0), 0.0, -job.number


def present(jobs: Sequence[Job]) -> Job | None:
    """The running job, given one run's jobs in order."""
    return jobs[0] if jobs and jobs[0].gone_at is None and jobs[0].stage in ("running", "unknown") else None


def holds_nodes(job: Job) -> bool:
    """Whether its processes are on its nodes, and pam_slurm_adopt lets its user log in there."""
    return job.gone_at is None and job.stage == "running" and job.state not in _WITHOUT_PROCESSES


def parts_by_node(jobs: Iterable[Job]) -> dict[str, JobPart]:
    """The nodes that these jobs hold, each with the job there. Of several, a suspended one counts last: no step of it
    can start."""
    holding = sorted(filter(holds_nodes, jobs), key=lambda job: job.state != "SUSPENDED")
    return {node: job.part_on(node) for job in holding for node in job.nodes}


def watched_runs(
    configured: Sequence[RunSpec],
    before: Sequence[RunSpec],
    jobs: Sequence[Job],
    me: Mapping[str, str | None],
    now: Instant,
) -> tuple[RunSpec, ...]:
    """All runs now: those of the config with what their jobs say of them, then our own that were found by themselves.

    `configured` are the config's own words; `before` is the answer of the last time, whose nodes and logs hold on where
    a job has ended: the end of its log is what a person wants to read then. `me` is who we are, by cluster.
    """
    known = {(spec.name, _jobs_name(spec)): spec for spec in before}
    named: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        named[job.cluster, job.name].append(job)
    specs = [_without_rivals(spec, named[_jobs_name(spec)]) for spec in configured]
    names = {spec.name for spec in configured}
    taken = {(*_jobs_name(spec), spec.user) for spec in configured}
    found = (
        spec
        for spec in _found(before, named, me, now)
        if not taken & {(*_jobs_name(spec), spec.user), (*_jobs_name(spec), None)}
    )
    for spec in islice(found, FOUND_AT_MOST):
        name = spec.name
        while name in names:  # a run of the config or of another cluster has this name
            name = f"{name}@{spec.cluster}"
        specs.append(replace(spec, name=name))
        names.add(name)
    return tuple(
        _filled(spec, known.get((spec.name, _jobs_name(spec))), jobs_of(spec, named[_jobs_name(spec)]))
        for spec in specs
    )


def _jobs_name(spec: RunSpec) -> tuple[str, str]:
    """By what its jobs are known: their cluster and name."""
    return spec.cluster, spec.job or spec.name


def _found(
    before: Sequence[RunSpec],
    named: Mapping[tuple[str, str], Sequence[Job]],
    me: Mapping[str, str | None],
    now: Instant,
) -> Iterator[RunSpec]:
    """Those found before while something is left of them, then the names of our own batch jobs that run now. The live
    ones go first: of a sweep's many, those that ended are left out."""
    kept: dict[tuple[str, str], list[RunSpec]] = defaultdict(list)
    for spec in before:
        own = jobs_of(spec, named.get(_jobs_name(spec), ())) if spec.found else ()
        if any(job.gone_at is None or now - job.gone_at < ENDED_RUNS_STAY for job in own):
            kept[_jobs_name(spec)].append(spec)
    ended = []
    for key in dict.fromkeys((*kept, *named)):
        for spec in _sharing(kept[key], [job for job in named[key] if _is_found(job, me)]):
            if present(jobs_of(spec, named[key])) is not None:
                yield replace(spec, log=None, nodes=())
            else:
                ended.append(replace(spec, log=None, nodes=()))
    yield from ended


def _is_found(job: Job, me: Mapping[str, str | None]) -> bool:
    """Whether it is a run by itself: our own batch job that runs now."""
    is_mine = bool(job.user and job.batch and job.name) and job.user == me.get(job.cluster)
    return is_mine and job.stage == "running" and job.gone_at is None


def _sharing(kept: Sequence[RunSpec], running: Sequence[Job]) -> Iterator[RunSpec]:
    """The runs of one name. Its jobs are one run, one after another; what trains beside its present one (a sweep, a
    script's default name) is a run of its own, else it would be seen by nobody."""
    whole = next((spec for spec in kept if spec.only is None), None)
    apart = {spec.only: spec for spec in kept if spec.only is not None}
    rest = [job for job in running if job.id not in apart]
    log = None if whole is None else whole.log
    rest.sort(key=lambda job: (job.stdout != log, job.started_at or 0.0, job.number))
    beside = list(dict.fromkeys(job.id for job in rest if holds_nodes(job)))[1:]
    if whole is None and rest:
        job = rest[0]
        whole = RunSpec(name=job.name, cluster=job.cluster, job=job.name, user=job.user, found=True)
    if whole is not None:
        yield replace(whole, without=(*apart, *beside))
    yield from apart.values()
    for name in beside:
        assert whole is not None
        yield replace(whole, name=f"{whole.job}#{name}", only=name, without=())


def _filled(spec: RunSpec, before: RunSpec | None, jobs: Sequence[Job]) -> RunSpec:
    """The run with the log and nodes of its running job. A log in the config wins over the job's. If none runs, the log
    of the last one shows how it ended, also after a restart of this program, and of a job that no look at the queue saw
    running."""
    job = present(jobs)
    last = next(
        (one for one in jobs if one.started_at is not None and (one.stage == "ended" or one.gone_at is not None)), None
    )
    shown = job or requeued_since(jobs, last) or last
    log = spec.log or (shown.stdout if shown is not None else None) or (before.log if before is not None else None)
    has_console = spec.wandb is not None and spec.wandb.console  # its lines come from W&B alone, and not twice
    nodes = (job.nodes if job is not None else ()) or spec.nodes or (before.nodes if before is not None else ())
    return replace(spec, log=None if has_console else log, nodes=nodes)


def requeued_since(jobs: Iterable[Job], last: Job | None) -> Job | None:
    """The job that waits and ran after the last one that ended. A requeue submits it anew."""
    ended_at = 0.0 if last is None else last.ends_at or last.gone_at or 0.0
    waiting = (one for one in jobs if one.stage == "waiting" and one.gone_at is None and one.restarts)
    return next((one for one in waiting if (one.submitted_at or 0.0) > ended_at), None)


def is_running(run: Run, jobs: Mapping[str, Job], sources: Mapping[str, Source]) -> bool | None:
    """Whether a job of the run runs now; None where its scheduler does not say."""
    source = sources.get(f"slurm:{run.spec.cluster}")
    if source is None or source.health in ("off", "down") or source.answered_at is None or not run.jobs:
        return None
    return present([jobs[key] for key in run.jobs if key in jobs]) is not None
