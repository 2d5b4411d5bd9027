"""Reducers of jobs: those of the queue, the attempts that they are, and the actions of people on them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.actions.verification import verify_record
from trainmon.analysis.attempts import (
    last_looks,
    pruned,
    receipts,
    track,
    with_accounted,
    with_file,
    with_outlived,
    with_stored,
    with_tail,
    with_unseen_log,
)
from trainmon.analysis.retries import judged, kept, use_of, with_decisions
from trainmon.analysis.runs import jobs_of, skew_of
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    ActionChanged,
    Attempt,
    AttemptsRestored,
    FileContent,
    Job,
    JobChanged,
    JobsListed,
    NodeReading,
    NodeUse,
    Receipts,
    Run,
    RunLooked,
    SchedulerNodesListed,
)

# ---- jobs, scheduler nodes, and the jobs of runs ---------------------------------------------------------------------

GONE_JOBS_STAY: Seconds = 86_400.0
"""How long a job that has left the queue stays in the State."""

DETAILS = (
    "detail_at", "restarts", "requeue", "batch", "command", "stdout", "stderr", "comment", "excluded",
    "excluded_in_part", "gpus", "gpus_requested", "gpu_indices", "resources", "exit_code", "cancelled_by",
)  # fmt: skip
"""Fields that a poll of the queue lacks. They are kept from an earlier query."""

OF_END = "state", "ends_at", "exit_code", "cancelled_by"
"""Fields that say how a job ended."""


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
    """Store the scheduler nodes of a cluster."""
    listed = {node.name: node for node in event.nodes}
    known = batch.current("scheduler_nodes").items()
    batch.maps["scheduler_nodes"] = {name: node for name, node in known if node.cluster != event.cluster} | listed


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


# ---- attempts: what the sources show of each, and what the ledger and accounting know --------------------------------


def attempts_restored(batch: EventBatch, event: AttemptsRestored) -> None:
    """Add the attempts of the ledger."""
    batch.maps["has_restored_attempts"] = True
    if event.uses:
        _judge_nodes(batch, (*event.uses, *batch.current("node_uses").values()), batch.current("attempts"))
    if event.attempts:
        _set_attempts(batch, with_stored(batch.current("attempts"), event.attempts))


def jobs_accounted(batch: EventBatch, jobs: tuple[Job, ...], now: Instant) -> None:
    """Add the ends that accounting knows, now or when the rest of what is known of them has been read. A job that left
    the queue without its end ended so for its run, too."""
    for job in jobs:
        old = batch.current("jobs").get(job.key)
        is_awaited = old is not None and old.gone_at is not None and old.stage != "ended"
        if old is not None and is_awaited and job.stage == "ended" and old.submitted_at == job.submitted_at:
            batch.writable("jobs")[job.key] = replace(old, **{name: getattr(job, name) for name in OF_END})
    batch.maps["accounted"] = (*batch.so_far(now).accounted, *jobs)
    found, batch.maps["accounted"] = with_accounted(batch.so_far(now))
    _set_attempts(batch, found)


def attempt_file_read(batch: EventBatch, content: FileContent, at: Instant, skew: Seconds) -> None:
    """Add the content of a file that identifies what an attempt trains with, or the last lines of its log."""
    known: Mapping[str, Attempt] = batch.current("attempts")
    attempt = known.get(content.id.partition(" ")[2])
    if attempt is None:
        return
    if content.id.startswith(receipts.TAIL):
        found = with_tail(attempt, content, batch.so_far(at), skew, batch.formats)
    else:
        found = with_file(attempt, content, at, skew)
    _set_attempts(batch, {**known, attempt.attempt_id: found})


def receipts_read(batch: EventBatch, event: NodeReading, listing: Receipts) -> None:
    """Add the receipts of trainmon-run that are new or have changed."""
    cluster, nodes = batch.current("clusters").get(event.cluster), batch.current("nodes")

    def ahead(host: str) -> Seconds:
        return skew_of(next((one for one in (host, host.partition(".")[0]) if one in nodes), event.node), nodes)

    slurm = cluster is None or cluster.has_slurm is not False
    read = (
        receipts.read(one, listing.directory, event.cluster, event.received_at, ahead, slurm=slurm)
        for one in listing.receipts
    )
    found = receipts.with_receipts(batch.current("receipts"), (one for one in read if one is not None))
    if listing.receipts:
        batch.maps["receipts"] = found


def unseen_log_read(batch: EventBatch, attempt: Attempt, read: Run, now: Instant) -> None:
    """Add what was read of the log of an attempt that ended unseen. `read` is its run with that log."""
    found = with_unseen_log(attempt, read, batch.so_far(now))
    if found is not attempt:
        _set_attempts(batch, {**batch.current("attempts"), attempt.attempt_id: found})


def looked(batch: EventBatch, event: RunLooked) -> None:
    """Keep what a look at the ranks has shown with the attempt: it may have ended meanwhile."""
    known: Mapping[str, Attempt] = batch.current("attempts")
    attempt = known.get(event.attempt or "")
    if attempt is not None and event.look.is_answer:
        found = replace(attempt, looks=last_looks((*attempt.looks, event.look)))
        _set_attempts(batch, {**known, attempt.attempt_id: found})


def note_outlived(batch: EventBatch, now: Instant) -> None:
    """Note what is still written after the end of an attempt, before the runs are judged by it."""
    _set_attempts(batch, with_outlived(batch.so_far(now)))


def advance_attempts(batch: EventBatch, now: Instant) -> None:
    """Open, update and close the attempts by the State so far."""
    state = batch.so_far(now)
    _set_attempts(batch, pruned(track(state), state))
    if state.accounted:
        jobs_accounted(batch, (), now)


def _set_attempts(batch: EventBatch, attempts: Mapping[str, Attempt]) -> None:
    """Set the attempts, if they have changed, with what is decided about those that ended."""
    before = batch.current("attempts")
    if attempts is not before:
        changed = (one for name, one in attempts.items() if one is not before.get(name))
        known, ended = batch.current("node_uses"), [use_of(one) for one in changed if one.end is not None]
        if any(one != known.get(one.attempt_id) for one in ended):
            _judge_nodes(batch, (*known.values(), *ended), attempts)
        batch.maps["attempts"] = with_decisions(before, attempts, batch.current("runs"), batch.current("node_records"))


def _judge_nodes(batch: EventBatch, ended: Iterable[NodeUse], attempts: Mapping[str, Attempt]) -> None:
    """Set what the attempts say of their nodes. Those that are open count as far as they have run now."""
    uses = batch.maps["node_uses"] = kept(one for one in ended if not one.is_open)
    batch.maps["node_records"] = judged((*uses.values(), *(use_of(one) for one in attempts.values() if one.is_open)))


# ---- actions ---------------------------------------------------------------------------------------------------------

SHOWN: Seconds = 3_600.0
"""How long a completed action stays in the State. The ledger keeps it for longer."""

MOST = 500
"""The maximum number of actions in a State. The oldest completed ones are dropped first."""


def action_changed(batch: EventBatch, event: ActionChanged) -> None:
    """Store the new record of an action. A late event does not undo a later one."""
    record, known = event.record, batch.current("actions").get(event.record.action.id)
    is_known = known is not None and known.status != "asked" and record.status == "asked"
    if is_known or (known is not None and known.settled_at is not None and record.settled_at is None):
        return
    if known is not None and not record.marks:
        record = replace(record, marks=known.marks)
    batch.writable("actions")[record.action.id] = record


def advance_actions(batch: EventBatch, now: Instant) -> None:
    """Verify the open actions against the current State, and drop those that ended long ago."""
    actions = batch.current("actions")
    if not actions:
        return
    state = batch.so_far(now)
    for name, record in actions.items():
        advanced = verify_record(record, state, now)
        if advanced is not record:
            batch.writable("actions")[name] = advanced
    actions = batch.current("actions")
    excess = len(actions) - MOST
    for index, name in enumerate([name for name, record in actions.items() if not record.is_open]):
        if index < excess or now - (actions[name].settled_at or now) > SHOWN:
            del batch.writable("actions")[name]
