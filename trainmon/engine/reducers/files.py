"""Reducers of probe readings about logs, checkpoints and switch files; for disks, see disks. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.analysis import log_formats
from trainmon.analysis.attempts import attempt_of_log, steps
from trainmon.analysis.checkpoints import evals
from trainmon.analysis.checkpoints import listing as checkpoint_listing
from trainmon.analysis.runs import RunContext, is_running, is_trained_elsewhere, trainer
from trainmon.analysis.runs.status import NO_LOG
from trainmon.analysis.wandb import progress as wandb_progress
from trainmon.engine.reducers import attempts, disks
from trainmon.engine.reducers.batch import EventBatch
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    LOG_LINES,
    LOG_MARK,
    RECENT_LOSSES,
    AnyReading,
    Attempt,
    CheckpointListing,
    DiskSamples,
    FileContent,
    Hello,
    Log,
    LogChunk,
    NodeReading,
    OtherLog,
    Progress,
    Receipts,
    Run,
    RunMemory,
    StepSpan,
    Switch,
    SwitchSample,
    SwitchSamples,
)

RESTARTED = {
    "truncated": f"{LOG_MARK}the log was truncated ────",
    "replaced": f"{LOG_MARK}the log was replaced ────",
    "newer": f"{LOG_MARK}a newer log ────",
}


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
        case LogChunk() as chunk:
            run = batch.current("runs").get(chunk.id)
            if run is not None:
                batch.writable("runs")[chunk.id] = _logged(run, event, chunk, batch.formats)
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


def _reported(batch: EventBatch, event: NodeReading, content: FileContent) -> None:
    """Apply the status file of a trainer. One that cannot be read, or is gone, changes nothing: its age shows."""
    run = batch.current("runs").get(content.id.removeprefix(trainer.PREFIX))
    found = trainer.read_status(content, event.node, _skew(batch, event.node))
    if run is not None and found is not None and _reads_for(batch, event, run):
        batch.writable("runs")[run.name] = replace(run, trainer=found)


def _read_unseen(batch: EventBatch, event: NodeReading, chunk: LogChunk, attempt: Attempt) -> None:
    """Read the log of an attempt that ended unseen as if a run followed it."""
    run = batch.current("runs").get(attempt.run_id)
    if run is not None:
        read = _logged(Run(spec=run.spec), event, chunk, batch.formats)
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
        case LogChunk(error=str()) | CheckpointListing(error=str()) | CheckpointListing(entries=()):
            return None
        case FileContent(error=str()):
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
            known = checkpoint_listing.read(
                listing,
                host=event.node,
                at=event.received_at,
                is_running=_is_written(run, batch),
                now=event.received_at,
                skew=_skew(batch, event.node),
                before=run.checkpoints,
            )
            batch.writable("runs")[name] = replace(run, listing=listing, checkpoints=known)


def _reads_for(batch: EventBatch, event: NodeReading, run: Run) -> bool:
    """Whether this host reads the files of the run's cluster: another cluster may have the same paths."""
    cluster = batch.current("clusters").get(run.spec.cluster)
    if event.cluster == run.spec.cluster or cluster is None:
        return True
    return event.node in (cluster.login, *run.spec.nodes)  # one host may be in two clusters


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


def _logged(run: Run, event: NodeReading, chunk: LogChunk, formats: tuple[log_formats.Format, ...]) -> Run:
    log = run.log or Log(host=event.node)
    grown = tuple(cleaned(line) for line in chunk.lines)
    if log.resync or log.host != event.node or _is_repeated(log, chunk):
        grown = new_lines(log.lines, grown)
    mark = () if chunk.restarted is None or log.at is None else (RESTARTED[chunk.restarted],)
    lines = (*log.lines, *mark, *grown)
    if len(grown) < len(chunk.lines):  # repeated steps are no progress
        chunk = replace(chunk, lines=chunk.lines[len(chunk.lines) - len(grown) :], kept=())
    at = _written_at(event, chunk, log if grown else None)
    is_same_file = chunk.restarted is None and chunk.path in (None, log.path)
    began_at, pause_s = (log.began_at, log.pause_s) if is_same_file else (None, 0.0)
    is_new = chunk.restarted is not None or (log.is_new if began_at is not None else _was_missing(run.log))
    if is_same_file and chunk.seen and log.at is not None and log.checked_at is not None:
        pause_s = max(pause_s, log.checked_at - log.at)  # no line had come when it was last read
    first_at = log.first_at if began_at is not None else None
    elapsed = None if log.checked_at is None else event.received_at - log.checked_at
    progress, memory = _progress(run, chunk, at or event.received_at, formats)
    if began_at is None and not is_new and at is not None and not _begins_again(memory.spans, chunk):
        first_at = _first_written(chunk, at, event.received_at - chunk.t)
    return replace(
        run,
        memory=memory,
        log=Log(
            host=event.node,
            path=chunk.path or log.path,
            path_before=log.path if mark else log.path_before,
            at=at if chunk.seen or chunk.partial is not None or log.at is None else log.at,
            checked_at=event.received_at,
            began_at=_began(event, chunk, log, at if is_new else None) if began_at is None else began_at,
            is_new=is_new,
            first_at=first_at,
            pause_s=pause_s,
            size=chunk.size if chunk.size is not None else log.size,
            lines=lines[-LOG_LINES:],
            first=log.first + max(0, len(lines) - LOG_LINES),
            partial=None if chunk.partial is None else cleaned(chunk.partial),
            dropped=log.dropped + chunk.dropped,
            lines_per_s=chunk.seen / elapsed if elapsed else log.lines_per_s,
            error=None if chunk.error is None else cleaned(chunk.error),
            others=log.others if is_same_file and not chunk.others else _others(event, chunk),
        ),
        progress=progress,
    )


def _others(event: NodeReading, chunk: LogChunk) -> tuple[OtherLog, ...]:
    ahead = chunk.t - event.received_at
    return tuple(OtherLog(one.path, min(event.received_at, one.written_at - ahead)) for one in chunk.others)


def _is_repeated(log: Log, chunk: LogChunk) -> bool:
    """Whether there are more lines than the file grew by: the reader has restarted."""
    if chunk.restarted is not None or chunk.path != log.path or chunk.size is None or log.size is None:
        return False
    return sum(len(line) + 1 for line in chunk.lines) > chunk.size - log.size + len(log.partial or "")


def new_lines(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """The new lines after the last two old ones: a new reader starts with the end of the file."""
    last = old[-2:]
    for end in range(len(new), 0, -1):
        if last and new[max(0, end - len(last)) : end] == last[-end:]:
            return new[end:]
    return new


def _written_at(event: NodeReading, chunk: LogChunk, before: Log | None) -> Instant | None:
    """When its last line was written, by our clock: an old log that is read for the first time is old. Lines that were
    not there when it was last read (`before`) are younger than that: a file server's clock may be far behind."""
    if chunk.mtime is None:
        return event.received_at if chunk.seen else None
    at = min(event.received_at, chunk.mtime - (chunk.t - event.received_at))
    if before is None or before.error is not None or before.path != chunk.path or before.checked_at is None:
        return at
    return max(at, min(before.checked_at, event.received_at))


def _began(event: NodeReading, chunk: LogChunk, log: Log, at: Instant | None) -> Instant | None:
    """When a file that is read for the first time began: one that was not there before, with the lines (`at`) that it
    has when it is noticed. If they are not younger than the log before it, its clock is wrong."""
    if chunk.path is None:
        return None
    return at if at is not None and at > (log.at or 0.0) else event.received_at


def _progress(
    run: Run, chunk: LogChunk, at: Instant, formats: tuple[log_formats.Format, ...]
) -> tuple[Progress, RunMemory]:
    progress, shape, last = run.progress, run.memory.shape, None
    spans = run.memory.spans
    if chunk.restarted is not None or ((run.log is None or _was_missing(run.log)) and _is_whole(chunk)):
        spans = steps.with_start(spans, at)
    losses = list(run.memory.unjudged)
    is_first = progress.at is None or wandb_progress.counts(progress)
    lines = [*chunk.kept, *chunk.lines, *([] if chunk.partial is None else [chunk.partial])]
    for index, text in enumerate(lines, start=-len(chunk.kept)):
        is_finished = index < len(chunk.lines)
        spans = steps.with_line(spans, text, at)
        found, shape = log_formats.read_line(text, progress, shape, at, formats, is_finished=is_finished)
        if found is not None:
            after = log_formats.advance(wandb_progress.without_wandb_steps(progress, found[1]), *found, at)
            has_moved = (after.step, after.epoch) != (progress.step, progress.epoch)
            if has_moved and is_finished and after.step is not None and after.bar is None:
                spans = steps.with_step(spans, after.step, at, after.cadence_s)
            last = index if is_finished and has_moved else last
            progress = after
            if has_moved or losses:
                _add_loss(losses, after)
        if index == len(chunk.lines) - 1 and is_first and last is not None and last >= 0 and progress.at is not None:
            progress = replace(progress, at=progress.at - log_formats.before_the_end(chunk.lines, last))
    memory, unjudged = run.memory, tuple(losses[-RECENT_LOSSES:])
    if shape != memory.shape or unjudged != memory.unjudged or spans is not memory.spans:
        memory = replace(memory, shape=shape, unjudged=unjudged, spans=spans)
    return wandb_progress.without_own_borrowed(progress), memory


def _was_missing(log: Log | None) -> bool:
    """Whether the last look found no file."""
    return log is not None and log.path is None and any(text in (log.error or "") for text in NO_LOG)


def _is_whole(chunk: LogChunk) -> bool:
    """Whether the chunk is all of its file."""
    return chunk.size is not None and not chunk.dropped and sum(len(line) + 1 for line in chunk.lines) >= chunk.size


def _begins_again(spans: tuple[StepSpan, ...], chunk: LogChunk) -> bool:
    """Whether the trainer has begun again in the lines that were there before: the log is older than its attempt."""
    return any(one.is_start for one in (spans[1:] if _is_whole(chunk) else spans))


def _first_written(chunk: LogChunk, at: Instant, ahead: Seconds) -> Instant | None:
    """When a log that was there before was begun. Its last line was written at `at`; its host's clock is `ahead`
    seconds behind ours."""
    since = log_formats.since_head(chunk.head or "", chunk.lines)
    if since is not None:
        return at - since
    return None if chunk.born is None else min(at, chunk.born + ahead)


def _add_loss(losses: list[tuple[int | None, float]], progress: Progress) -> None:
    """Add the loss of a step. A later line of the same step may correct it. W&B's losses are judged with its curve."""
    if losses and losses[-1][0] == progress.step:
        losses.pop()
    if progress.loss is not None and "loss" in progress.printed and "loss" not in progress.borrowed:
        losses.append((progress.step, progress.loss))


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
        by=None if sample.owner is None else cleaned(sample.owner),
        why=cleaned((sample.text or "").split("\n", 1)[0]) or None,
        taken_at=taken_at,
        was_armed_at=was_armed_at,
        error=None if sample.error is None else cleaned(sample.error),
    )
