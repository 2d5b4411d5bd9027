"""Which jobs are a run's, and which runs there are: those of the config, and our own jobs that are in none. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from trainmon.clock import Instant, Seconds
from trainmon.model import RunSpec
from trainmon.model_jobs import Job

ENDED_RUNS_STAY: Seconds = 86_400.0
"""How long a run that was found by itself stays after its last job: a night and a morning."""

FOUND_AT_MOST = 200
"""Runs that are found by themselves; who has more names of jobs than this has a sweep, not runs."""

_WITHOUT_PROCESSES = frozenset({"COMPLETING", "CONFIGURING", "POWER_UP_NODE", "STAGE_OUT"})
"""States that count as running: before the first process, and after the last that can be ended."""

_ORDER = {"running": 0, "unknown": 0, "waiting": 1, "ended": 2}


def jobs_of(spec: RunSpec, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs of a run by cluster, job name and user: those that run, those that wait in order, those that ended."""
    name = spec.job or spec.name
    own = [job for job in jobs if job.name == name and job.cluster == spec.cluster and spec.user in (None, job.user)]
    return tuple(sorted(own, key=_place))


def _place(job: Job) -> tuple[int, float, int]:
    """Of those that run the latest start first; of those that wait the first; of those that ended the last."""
    order = 2 if job.gone_at is not None else _ORDER[job.stage]
    at = job.started_at if order == 0 else job.submitted_at if order == 1 else job.ends_at or job.gone_at
    return order, (at or 0.0) if order == 1 else -(at or 0.0), job.number if order == 1 else -job.number


def present(jobs: Sequence[Job]) -> Job | None:
    """Of one run's jobs in order: the one that runs now."""
    return jobs[0] if jobs and jobs[0].gone_at is None and jobs[0].stage in ("running", "unknown") else None


def holds_nodes(job: Job) -> bool:
    """Whether its processes are on its nodes, and people let in there for it."""
    return job.gone_at is None and job.stage == "running" and job.state not in _WITHOUT_PROCESSES


def followed(
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
    specs = list(configured)
    taken = {_jobs_name(spec) for spec in configured}
    names = {spec.name for spec in configured}
    for spec in _found(before, named, jobs, me, now):
        if _jobs_name(spec) in taken or len(specs) - len(configured) >= FOUND_AT_MOST:
            continue
        taken.add(_jobs_name(spec))
        specs.append(replace(spec, name=_free(spec, names)))
        names.add(specs[-1].name)
    return tuple(
        _filled(spec, known.get((spec.name, _jobs_name(spec))), jobs_of(spec, named[_jobs_name(spec)]))
        for spec in specs
    )


def _jobs_name(spec: RunSpec) -> tuple[str, str]:
    """By what its jobs are known: their cluster and name."""
    return spec.cluster, spec.job or spec.name


def _free(spec: RunSpec, names: set[str]) -> str:
    """Its name, or another where a run of the config or of another cluster is called so."""
    name = spec.name
    while name in names:
        name = f"{name}@{spec.cluster}"
    return name


def _found(
    before: Sequence[RunSpec],
    named: Mapping[tuple[str, str], Sequence[Job]],
    jobs: Sequence[Job],
    me: Mapping[str, str | None],
    now: Instant,
) -> Iterator[RunSpec]:
    """Those found before while something is left of them, then the names of our own batch jobs that run now."""
    for spec in before:
        own = jobs_of(spec, named.get(_jobs_name(spec), ())) if spec.found else ()
        if any(job.gone_at is None or now - job.gone_at < ENDED_RUNS_STAY for job in own):
            yield replace(spec, log=None, nodes=())
    for job in jobs:
        is_mine = bool(job.user) and job.user == me.get(job.cluster)
        if is_mine and job.batch and job.name and job.stage == "running" and job.gone_at is None:
            yield RunSpec(name=job.name, cluster=job.cluster, job=job.name, user=job.user, found=True)


def _filled(spec: RunSpec, before: RunSpec | None, jobs: Sequence[Job]) -> RunSpec:
    """What its job says where one runs now: the config's nodes are those without a job, its log goes before all."""
    job = present(jobs)
    log = spec.log or (job.stdout if job is not None else None) or (before.log if before is not None else None)
    nodes = (job.nodes if job is not None else ()) or spec.nodes or (before.nodes if before is not None else ())
    return replace(spec, log=log, nodes=nodes)
