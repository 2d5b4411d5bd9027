"""Reducers of probe readings about logs, checkpoints and switch files; for disks, see disks. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.analysis.attempts import attempt_of_log
from trainmon.analysis.checkpoints import evals
from trainmon.analysis.checkpoints import listing as checkpoint_listing
from trainmon.analysis.runs import RunContext, is_running, is_trained_elsewhere, trainer, with_commits
from trainmon.engine.reducers import attempts, disks
from trainmon.engine.reducers.batch import EventBatch
from trainmon.engine.reducers.logs import logged, written_at
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    ON_NODE,
    AnyReading,
    Attempt,
    CheckpointListing,
    DiskSamples,
    FileContent,
    Hello,
    LogChunk,
    NodeReading,
    Receipts,
    Run,
    Switch,
    SwitchSample,
    SwitchSamples,
    armed_by,
)

STALE: Seconds = 60.0
"""How much older one of two files of the same path is that is not the same file: two readers of one file, or the clocks
of two hosts, differ by less."""


def read(batch: EventBatch, event: NodeReading) -> None:
    """Apply a reading about files. Other readings are ignored."""
    reading = _stand_in_reading(batch, event) if event.is_stand_in else event.reading
    match reading:
        case Hello():
            for name, run in batch.current("runs").items():
                if run.log is not None and run.log.host == event.node and not run.log.resync:
                    batch.writable("runs")[name] = replace(run, log=replace(run.log, resync=True))
        case DiskSamples(d=samples):
            disks.sampled(batch, event, samples)
        case LogChunk(id=name) as chunk if name.startswith(trainer.TRAINER_STATE):
            _saved(batch, chunk)
        case LogChunk() as chunk:
            run = batch.current("runs").get(chunk.id.removeprefix(ON_NODE))
            if run is not None and not _is_read_elsewhere(run, event, chunk):
                batch.writable("runs")[run.name] = logged(run, event, chunk, batch.formats)
            elif (ended := attempt_of_log(chunk.id, batch.current("attempts"))) is not None:
                _read_unseen(batch, event, chunk, ended)
            else:
                _evaluated(batch, chunk)
        case CheckpointListing() as listing:
            _listed(batch, event, listing)
        case FileContent(id=name) as content if name.startswith(trainer.PREFIX):
            _reported(batch, event, content)
        case FileContent() as content:
            attempts.file_read(batch, content, event.received_at, skew=_skew(batch, event.node))
        case Receipts() as listing:
            attempts.receipts_read(batch, event, listing)
        case SwitchSamples(s=switches):
            for switch in switches:
                _switched(batch, event, switch, skew=_skew(batch, event.node))


def _is_read_elsewhere(run: Run, event: NodeReading, chunk: LogChunk) -> bool:
    """Whether another host reads the log of a run: one of its nodes, which alone has it, where the first host misses
    it, or the first host, which sees what that node has. Where each has a file of that path, the newer one counts."""
    log, has_log = run.log, chunk.path is not None or bool(chunk.lines)
    if log is None or log.host == event.node or log.path is None or log.error is not None:
        return chunk.id != run.name and not has_log
    written = written_at(event, chunk, None)
    lead = written - log.modified_at if chunk.local and log.is_local and written and log.modified_at else 0.0
    return (log.host in run.spec.nodes and (not has_log or lead < -STALE)) if chunk.id == run.name else lead <= STALE


def _reported(batch: EventBatch, event: NodeReading, content: FileContent) -> None:
    """Apply the status file of a trainer. One that cannot be read, or is gone, changes nothing: its age shows."""
    run = batch.current("runs").get(content.id.removeprefix(trainer.PREFIX))
    found = trainer.read_status(content, event.node, _skew(batch, event.node))
    if run is not None and found is not None and _reads_for(batch, event, run):
        batch.writable("runs")[run.name] = replace(run, trainer=found)


def _saved(batch: EventBatch, chunk: LogChunk) -> None:
    """Apply the last loss in these lines of the state of Hugging Face's Trainer."""
    run = batch.current("runs").get(chunk.id.removeprefix(trainer.TRAINER_STATE))
    losses = trainer.LOSS.findall("\n".join((*chunk.kept, *chunk.lines)))
    if run is not None and losses:
        batch.writable("runs")[run.name] = replace(run, saved_loss=float(losses[-1]))


def _read_unseen(batch: EventBatch, event: NodeReading, chunk: LogChunk, attempt: Attempt) -> None:
    """Read the log of an attempt that ended unseen as if a run followed it."""
    run = batch.current("runs").get(attempt.run_id)
    if run is not None:
        read = logged(Run(spec=run.spec), event, chunk, batch.formats)
        attempts.log_read(batch, attempt, read, event.received_at)


def _evaluated(batch: EventBatch, chunk: LogChunk) -> None:
    """Apply new lines of a file of results to its run."""
    for name, run in batch.current("runs").items():
        for log in evals.eval_logs(run.spec):
            if log.id == chunk.id:
                batch.writable("runs")[name] = evals.with_chunk(run, chunk, log.pattern)


def _stand_in_reading(batch: EventBatch, event: NodeReading) -> AnyReading | None:
    """The usable part of the reading of a stand-in host. A file that it does not find or may not read is left out,
    because the first host may see it."""
    match event.reading:
        case DiskSamples(d=samples) as reading:
            return replace(reading, d=tuple(replace(one, read_only=None) for one in samples if one.state == "ok"))
        case (
            LogChunk(error=str())
            | FileContent(error=str())
            | CheckpointListing(error=str())
            | CheckpointListing(entries=())
        ):
            return None
        case CheckpointListing(entries=entries) if any(entry.error is not None for entry in entries):
            return None
        case SwitchSamples(s=switches) as reading:
            runs = batch.current("runs").values()
            ours = {s.path for run in runs for s in (run.kill, run.save) if s and s.exists and s.host == event.node}
            return replace(reading, s=tuple(s for s in switches if s.exists or (s.exists is False and s.path in ours)))
    return event.reading


def _listed(batch: EventBatch, event: NodeReading, listing: CheckpointListing) -> None:
    """Apply the listing of a checkpoint directory to every run that saves there."""
    for name, run in batch.current("runs").items():
        if run.spec.checkpoints == listing.path and _reads_for(batch, event, run):
            listing = checkpoint_listing.with_pointers(listing, run.listing)
            known = checkpoint_listing.read(
                listing,
                host=event.node,
                at=event.received_at,
                is_running=_is_written(run, batch),
                now=event.received_at,
                skew=_skew(batch, event.node),
                before=run.checkpoints,
            )
            run = replace(run, listing=listing, checkpoints=known)
            batch.writable("runs")[name] = replace(run, memory=with_commits(run))


def _reads_for(batch: EventBatch, event: NodeReading, run: Run) -> bool:
    """Whether this host reads the files of the run's cluster: another cluster may have the same paths, and one host
    may be in two clusters."""
    cluster = batch.current("clusters").get(run.spec.cluster)
    return cluster is None or event.cluster == run.spec.cluster or event.node in (cluster.login, *run.spec.nodes)


def _is_written(run: Run, batch: EventBatch) -> bool | None:
    """Whether a process may be writing its checkpoints: its job is running, or its log still grows after the job has
    ended."""
    context = RunContext(batch.current("nodes"), batch.current("sources"), batch.current("jobs"))
    runs = is_running(run, context.jobs, context.sources)
    return None if runs is False and is_trained_elsewhere(run, context) else runs


def pass_time(batch: EventBatch, now: Instant) -> None:
    """Evaluate listings again: a save becomes torn when its writer ends, or writes nothing for a long time."""
    for name, run in batch.current("runs").items():
        known = run.checkpoints
        if run.listing is None or known is None or (known.writing is None and known.committed is not None):
            continue
        again = checkpoint_listing.read(
            run.listing,
            host=known.host,
            at=known.listed_at,
            is_running=_is_written(run, batch),
            now=now,
            skew=_skew(batch, known.host),
            before=known,
        )
        if again != known:
            batch.writable("runs")[name] = replace(run, checkpoints=again)


def _skew(batch: EventBatch, host: str) -> float:
    node = batch.current("nodes").get(host)
    return 0.0 if node is None else node.clock_skew_s or 0.0


def _switched(batch: EventBatch, event: NodeReading, sample: SwitchSample, skew: float) -> None:
    for name, run in batch.current("runs").items():
        paths = (run.spec.kill_switch, run.spec.save_switch)
        if sample.path in paths and _reads_for(batch, event, run):
            field = ("kill", "save")[paths.index(sample.path)]
            switch = _switch(getattr(run, field), sample, event, skew)
            batch.writable("runs")[name] = replace(run, **{field: switch})


def _switch(old: Switch | None, sample: SwitchSample, event: NodeReading, skew: float) -> Switch:
    taken_at, was_armed_at = (None, None) if old is None else (old.taken_at, old.was_armed_at)
    if old is not None and old.exists and sample.exists is False:
        taken_at, was_armed_at = event.received_at, old.armed_at
    return Switch(
        path=sample.path,
        host=event.node,
        exists=sample.exists,
        armed_at=None if not sample.exists or sample.mtime is None else sample.mtime - skew,
        by=None if sample.owner is None else cleaned(armed_by(sample.owner, sample.kind or "")),
        why=cleaned((sample.text or "").split("\n", 1)[0]) or None,
        taken_at=taken_at,
        was_armed_at=was_armed_at,
        error=None if sample.error is None else cleaned(sample.error),
    )
