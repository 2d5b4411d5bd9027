"""Resolves the arguments of a command to runs, jobs (by key) and nodes. Pure."""

from __future__ import annotations

import re
import signal

from trainmon.actions.planning import NUMBERS, cluster_of
from trainmon.actions.verbs import VERB
from trainmon.config import did_you_mean, quoted
from trainmon.lib import TrainmonError
from trainmon.model import Job, State, Verb

JOB = re.compile(r"(?:(?P<cluster>[^/]+)/)?(?P<id>\d+(?:_(?:\d+|\[[^\]/]*\]))?)(?:\+(?P<component>\d+))?")
"""A job id. A component of a heterogeneous job, `88+1`, means the whole job: most actions affect all of it."""

LIKE_A_SIGNAL = re.compile(r"[A-Z][A-Z0-9]*")


class NotFound(TrainmonError):
    """An argument names no run, job or node, or more than one job."""


def split_signal(args: tuple[str, ...], state: State) -> tuple[tuple[str, ...], str | None]:
    """`video-2b USR1` → the runs, and the signal if the last argument is one.

    Raises:
        NotFound: when it has the form of a signal, but is none.
    """
    *before, last = args
    name = last.removeprefix("SIG")
    if not before or last in state.runs or not LIKE_A_SIGNAL.fullmatch(name):
        return args, None
    if name in NUMBERS or f"SIG{name}" in signal.Signals.__members__:
        return tuple(before), name
    raise NotFound(
        f"no signal or run is named {quoted(last)}{did_you_mean(name, list(NUMBERS))}",
        hint=f"signals that a trainer can catch: {', '.join(NUMBERS)}",
    )


def resolve(verb: Verb, args: tuple[str, ...], state: State) -> tuple[str, ...]:
    """The names of these rows in the State.

    Raises:
        NotFound: when an argument names nothing, or several jobs.
    """
    if VERB[verb].target != "node":
        return tuple(dict.fromkeys(_run_or_job(verb, arg, state) for arg in args))
    known = [*state.nodes, *state.scheduler_nodes]
    for arg in args:
        if arg not in known and cluster_of(state, arg) is None:
            raise NotFound(f"no node {quoted(arg)} is watched or known to Slurm{did_you_mean(arg, known)}")
    return tuple(dict.fromkeys(args))


def _run_or_job(verb: Verb, arg: str, state: State) -> str:
    if arg in state.runs:
        return arg
    takes_jobs = VERB[verb].takes_jobs
    named = JOB.fullmatch(arg)
    if named is None:
        hint = _runs(state)
        if takes_jobs:
            ids = ", ".join(job.id for job in _present([job for job in state.jobs.values() if job.name == arg])[:8])
            hint += "; specify a job by its id" + (f": {ids}" if ids else "")
        what = "run or job" if takes_jobs else "run"
        raise NotFound(f"no {what} is named {quoted(arg)}{did_you_mean(arg, list(state.runs))}", hint=hint)
    job = _job(named["cluster"], named["id"], arg, state)
    if named["component"] is not None and job in state.jobs and not state.jobs[job].components:
        raise NotFound(f"job {named['id']} is not heterogeneous: it has no component +{named['component']}")
    run = job if takes_jobs else next((run.name for run in state.runs.values() if job in run.jobs), None)
    if run is None:
        raise NotFound(f"job {arg} belongs to no run; {verb} needs a run", hint=_runs(state))
    return run


def _runs(state: State) -> str:
    names = [quoted(name) for name in list(state.runs)[:8]]
    return f"runs: {', '.join(names)}" if names else "no run is in the config, and none of your jobs is running"


def _job(cluster: str | None, number: str, arg: str, state: State) -> str:
    """The key of the one job that is meant. If there is one Slurm, it may be a job that no queue lists."""
    if cluster is not None and cluster not in state.clusters:
        raise NotFound(f"job {arg}: unknown cluster {quoted(cluster)}{did_you_mean(cluster, state.clusters)}")
    jobs = [job for job in state.jobs.values() if cluster in (None, job.cluster)]
    exact = [job for job in jobs if number in (job.id, job.target, job.key.partition("/")[2])]
    found = _present(exact) or _present([job for job in jobs if str(job.array) == number])
    # One task of an array has the number of the whole array. It is meant only if nothing else is.
    found = found or _present([job for job in jobs if job.has_number(number)])
    if len(found) > 1:
        several = "is an array" if len({job.cluster for job in found}) == 1 else "is in several clusters"
        raise NotFound(f"job {arg} {several}: specify one of {', '.join(job.key for job in found[:8])}")
    clusters = [name for name in state.clusters if f"slurm:{name}" in state.sources] if cluster is None else [cluster]
    if found or len(clusters) == 1:
        return found[0].key if found else f"{clusters[0]}/{number}"
    raise NotFound(f"job {arg} is in no queue", hint=f"specify its cluster: CLUSTER/{number}")


def _present(jobs: list[Job]) -> list[Job]:
    """The jobs that are still in a queue; where there are none, all of them."""
    return [job for job in jobs if job.gone_at is None and job.stage != "ended"] or jobs
