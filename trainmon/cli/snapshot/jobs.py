"""A State's queue as plain tables: jobs, nodes that need a word, spares."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.analysis.nodes import spares
from trainmon.engine.reducers import state_of
from trainmon.lib import Instant
from trainmon.model import Checkpoints, Job, Run, Source, State
from trainmon.slurm import reasons
from tui.style import age, count, duration, since

JOBS = ("JOB", "NAME", "USER", "STATE", "NODES", "LEFT", "RESTARTS", "WHY")
NODES = ("SCHEDULER'S NODE", "STATE", "REASON", "BY", "SINCE")
SCHEDULERS = ("SCHEDULER", "HEALTH", "AGE", "TROUBLE")
ORDER = {"running": 0, "unknown": 1, "waiting": 2, "ended": 3}


def sections(state: State) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The head and the rows of each table that has something to say."""
    told = [_scheduler(source, state.at) for source in state.sources.values() if source.kind == "slurm"]
    if told:
        yield SCHEDULERS, told
    listed = sorted((job for job in state.jobs.values() if job.gone_at is None), key=_place)
    if listed:
        yield JOBS, [_job(job, state.at) for job in listed]
    nodes: list[tuple[str, ...]] = [
        (node.name, state_of(node), node.reason or "", node.reason_by or "", since(node.reason_at, state.at))
        for node in state.scheduler_nodes.values()
        if not node.is_usable or node.reason
    ]
    if nodes:
        yield NODES, nodes


def remarks(state: State) -> Iterator[str]:
    """A sentence for each cluster that wants spares."""
    for found in spares(state):
        if found.wanted:
            have = "?" if found.idle_healthy is None else str(found.idle_healthy)
            yield f"{found.cluster}: {have} of {found.wanted} healthy idle nodes wanted, {found.drained or 0} drained"


def _place(job: Job) -> tuple[int, int]:
    return ORDER[job.stage], job.number


def _scheduler(source: Source, now: Instant) -> tuple[str, ...]:
    trouble = "; ".join(text for text in (source.error, source.hint) if text)
    return source.name.removeprefix("slurm:"), source.health, since(source.seen_at, now), trouble


def _job(job: Job, now: Instant) -> tuple[str, ...]:
    running = job.stage == "running"
    left = "-" if not running or job.ends_at is None else duration(max(0.0, job.ends_at - now))
    why = (
        reasons.waiting_reason(job, now)
        if job.stage == "waiting"
        else reasons.end_reason(job)
        if job.stage == "ended"
        else ""
    )
    restarts = "?" if job.restarts is None else str(job.restarts)
    return job.id, job.name, job.user, job.state, str(job.node_count or "?"), left, restarts, why


def job_of(run: Run, state: State) -> str:
    """`88 +2`: the run's job, and how many wait behind it."""
    job = state.jobs.get(run.job or "")
    behind = f" +{run.queued_behind}" if run.queued_behind else ""
    return "-" if job is None else job.id + behind


def checkpoint_of(found: Checkpoints | None, now: Instant) -> str:
    """`12,800 5m ago`: the last committed checkpoint, or what is wrong."""
    if found is None:
        return "-"
    if found.error or found.problem:
        return found.error or found.problem or ""
    committed = found.committed
    if committed is None or committed.at is None:
        return "?"
    return f"{count(committed.step)} {age(now - committed.at)} ago"
