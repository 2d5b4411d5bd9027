"""Reducers of scheduler events: jobs, scheduler nodes, and the jobs of runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from trainmon.analysis.runs import jobs_of
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Seconds
from trainmon.model import Job, JobChanged, JobsListed, Node, SchedulerNode, SchedulerNodesListed

GONE_JOBS_STAY: Seconds = 86_400.0
"""How long a job that has left the queue stays in the State."""

DETAILS = (
    "detail_at", "restarts", "requeue", "batch", "command", "stdout", "stderr", "comment", "excluded",
    "excluded_in_part", "gpus", "gpus_requested", "exit_code", "cancelled_by",
)  # fmt: skip
"""Fields that a poll of the queue lacks. They are kept from an earlier query."""


def jobs_listed(batch: EventBatch, event: JobsListed) -> None:
    """The queue as it is now. A job that it no longer lists is gone, not ended: accounting may know more."""
    jobs = batch.writable("jobs")
    listed = {job.key: job for job in event.jobs}
    for key, job in list(jobs.items()):
        if job.cluster != event.cluster or key in listed:
            continue
        if job.is_waiting_array:  # its elements have started, each under its own id, or were cancelled
            del jobs[key]
        elif job.gone_at is None:
            jobs[key] = replace(job, gone_at=event.at)
        elif event.at - job.gone_at > GONE_JOBS_STAY:
            del jobs[key]
    for key, job in listed.items():
        old = jobs.get(key)
        # A number that is used again is another job.
        is_same = old is not None and old.submitted_at == job.submitted_at
        details = {name: getattr(old, name) for name in DETAILS} if is_same and job.detail_at is None else {}
        job = replace(job, **details)
        since = old.listed_at if old is not None and is_same else None
        jobs[key] = job if job.detail_at is not None else replace(job, listed_at=since or event.at)


def job_changed(batch: EventBatch, event: JobChanged) -> None:
    """Store details of one job."""
    job, old = event.job, batch.current("jobs").get(event.job.key)
    gone_at = job.gone_at if job.gone_at is not None or old is None else old.gone_at
    batch.writable("jobs")[job.key] = replace(job, gone_at=gone_at)


def nodes_listed(batch: EventBatch, event: SchedulerNodesListed) -> None:
    """Store the scheduler nodes of a cluster, and copy their states to the watched nodes."""
    listed = {node.name: node for node in event.nodes}
    known = batch.current("scheduler_nodes").items()
    batch.maps["scheduler_nodes"] = {name: node for name, node in known if node.cluster != event.cluster} | listed
    for name in batch.current("nodes").keys() & listed.keys():
        node = batch.current("nodes")[name]
        if (node.scheduler_state, node.scheduler_reason) != (listed[name].full_state, listed[name].reason):
            batch.writable("nodes")[name] = with_scheduler(node, listed[name])


def with_scheduler(node: Node, listed: SchedulerNode | None) -> Node:
    """The node with its state in the scheduler."""
    if listed is None:
        return node
    return replace(node, scheduler_state=listed.full_state, scheduler_reason=listed.reason)


def join(batch: EventBatch) -> None:
    """Give every run its jobs. Called when either changed."""
    jobs = batch.current("jobs")
    known = {
        source.cluster
        for source in batch.current("sources").values()
        if source.kind == "slurm" and source.answered_at is not None
    }
    for name, run in batch.current("runs").items():
        own = jobs_of(run.spec, jobs.values())
        keys = tuple(job.key for job in own)
        behind = queued_behind(own, jobs.values()) if run.spec.cluster in known else None
        if (keys, behind) != (run.jobs, run.queued_behind):
            batch.writable("runs")[name] = replace(run, jobs=keys, queued_behind=behind)


def queued_behind(own: tuple[Job, ...], jobs: Iterable[Job]) -> int:
    """How many jobs wait behind the first job of a run: jobs with the same name, and jobs that depend on it."""
    if not own or own[0].gone_at is not None or own[0].stage == "ended":
        return 0
    first, waiting = own[0], [job for job in own if job.stage == "waiting" and job.gone_at is None]
    names = {job.key for job in own}
    others = [job for job in jobs if job.key not in names and job.stage == "waiting" and depends_on(job, first)]
    count = sum(job.elements for job in (*waiting, *others) if job.gone_at is None)
    return count - 1 if first.stage == "waiting" else count


def depends_on(job: Job, other: Job) -> bool:
    """Whether a job's dependency names the other."""
    if job.cluster != other.cluster or not job.dependency:
        return False
    numbers = set(map(str, (other.number, other.array or other.number, *other.components)))
    return bool(numbers & set(re.findall(r"(?<![\d_])\d+", job.dependency)))
