"""Which jobs are a run's, and which runs there are: those of the config, and our own jobs that are in none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from trainmon.clock import Instant, Seconds
from trainmon.model import RunSpec
from trainmon.model_jobs import Job

ENDED_RUNS_STAY: Seconds = 86_400.0
"""How long a run that was found by itself stays after its last job: a night and a morning."""

_ORDER = {"running": 0, "unknown": 0, "waiting": 1, "ended": 2}


def jobs_of(spec: RunSpec, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs of a run by cluster and job name: those that run, those that wait in order, those that ended."""
    own = [job for job in jobs if job.cluster == spec.cluster and job.name == (spec.job or spec.name)]
    return tuple(sorted(own, key=_place))


def _place(job: Job) -> tuple[int, float, int]:
    """Of those that run the latest start first; of those that wait the first; of those that ended the last."""
    order = 2 if job.gone_at is not None else _ORDER[job.stage]
    at = job.started_at if order == 0 else job.submitted_at if order == 1 else job.ends_at or job.gone_at
    return order, (at or 0.0) if order == 1 else -(at or 0.0), job.number


def present(jobs: Sequence[Job]) -> Job | None:
    """Of one run's jobs in order: the one that runs now."""
    return jobs[0] if jobs and jobs[0].gone_at is None and jobs[0].stage in ("running", "unknown") else None


def followed(
    configured: Sequence[RunSpec], before: Sequence[RunSpec], jobs: Sequence[Job], me: str | None, now: Instant
) -> tuple[RunSpec, ...]:
    """All runs now: those of the config with what their jobs say of them, then our own that were found by themselves.

    `configured` are the config's own words; `before` is the answer of the last time, whose nodes and logs hold on where
    a job has ended: the end of its log is what a person wants to read then.
    """
    known = {spec.name: spec for spec in before}
    runs = [_filled(spec, known.get(spec.name), jobs_of(spec, jobs)) for spec in configured]
    taken = {(spec.cluster, spec.job or spec.name) for spec in configured}
    names = {spec.name for spec in configured}
    for spec in _found(before, jobs, me, now):
        if (spec.cluster, spec.job or spec.name) in taken:
            continue
        taken.add((spec.cluster, spec.job or spec.name))
        if spec.name in names:
            spec = replace(spec, name=f"{spec.name}@{spec.cluster}")
        names.add(spec.name)
        runs.append(_filled(spec, known.get(spec.name), jobs_of(spec, jobs)))
    return tuple(runs)


def _found(before: Sequence[RunSpec], jobs: Sequence[Job], me: str | None, now: Instant) -> Iterable[RunSpec]:
    """Those found before while something is left of them, then the names of our own batch jobs that run now."""
    for spec in before:
        own = jobs_of(spec, jobs)
        if spec.found and any(job.gone_at is None or now - job.gone_at < ENDED_RUNS_STAY for job in own):
            yield replace(spec, log=None, nodes=())
    for job in jobs:
        if me is not None and job.user == me and job.stage == "running" and job.gone_at is None and job.batch:
            yield RunSpec(name=job.name, cluster=job.cluster, job=job.name, found=True)


def _filled(spec: RunSpec, before: RunSpec | None, jobs: Sequence[Job]) -> RunSpec:
    """What the config leaves open, from the job that runs now; else what was known of the last."""
    job = present(jobs)
    log = spec.log or (job.stdout if job is not None else None) or (before.log if before is not None else None)
    nodes = spec.nodes or (job.nodes if job is not None else ()) or (before.nodes if before is not None else ())
    return replace(spec, log=log, nodes=nodes)
