"""Reducers of State.attempts: what the sources show of each attempt, and what the ledger and accounting know. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainmon.analysis.attempts import (
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
from trainmon.analysis.retries import with_decisions
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, AttemptsRestored, FileContent, Job, NodeReading, Receipts, Run


def restored(batch: EventBatch, event: AttemptsRestored) -> None:
    """Add the attempts of the ledger."""
    batch.maps["has_restored_attempts"] = True
    if event.attempts:
        _change(batch, with_stored(batch.current("attempts"), event.attempts))


def accounted(batch: EventBatch, jobs: tuple[Job, ...], now: Instant) -> None:
    """Add the ends that accounting knows, now or when the rest of what is known of them has been read."""
    batch.maps["accounted"] = (*batch.so_far(now).accounted, *jobs)
    found, batch.maps["accounted"] = with_accounted(batch.so_far(now))
    _change(batch, found)


def file_read(batch: EventBatch, content: FileContent, at: Instant, skew: Seconds) -> None:
    """Add the content of a file that identifies what an attempt trains with, or the last lines of its log."""
    if content.id.startswith(receipts.TAIL):
        _change(batch, with_tail(batch.current("attempts"), content, batch.so_far(at), skew, batch.formats))
    else:
        _change(batch, with_file(batch.current("attempts"), content, at, skew))


def receipts_read(batch: EventBatch, event: NodeReading, listing: Receipts) -> None:
    """Add the receipts of trainmon-run that are new or have changed."""
    cluster, nodes = batch.current("clusters").get(event.cluster), batch.current("nodes")

    def ahead(host: str) -> Seconds:
        node = nodes.get(host) or nodes.get(host.partition(".")[0]) or nodes.get(event.node)
        return 0.0 if node is None else node.clock_skew_s or 0.0

    slurm = cluster is None or cluster.has_slurm is not False
    read = (
        receipts.read(one, listing.directory, event.cluster, event.received_at, ahead, slurm=slurm)
        for one in listing.receipts
    )
    found = receipts.with_receipts(batch.current("receipts"), (one for one in read if one is not None))
    if listing.receipts:
        batch.maps["receipts"] = found


def log_read(batch: EventBatch, attempt: Attempt, read: Run, now: Instant) -> None:
    """Add what was read of the log of an attempt that ended unseen. `read` is its run with that log."""
    found = with_unseen_log(attempt, read, batch.so_far(now))
    if found is not attempt:
        _change(batch, {**batch.current("attempts"), attempt.attempt_id: found})


def outlived(batch: EventBatch, now: Instant) -> None:
    """Note what is still written after the end of an attempt, before the runs are judged by it."""
    _change(batch, with_outlived(batch.so_far(now)))


def advance(batch: EventBatch, now: Instant) -> None:
    """Open, update and close the attempts by the State so far."""
    state = batch.so_far(now)
    _change(batch, pruned(track(state), state))
    if state.accounted:
        accounted(batch, (), now)


def _change(batch: EventBatch, attempts: Mapping[str, Attempt]) -> None:
    """Set the attempts, if they have changed, with what is decided about those that ended."""
    before = batch.current("attempts")
    if attempts is not before:
        batch.maps["attempts"] = with_decisions(before, attempts, batch.current("runs"))
