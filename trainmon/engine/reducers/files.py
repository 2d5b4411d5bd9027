"""Reducers of probe readings about disks, logs, checkpoints and switch files. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, partial

from msgspec.structs import asdict, replace

from trainmon.analysis import log_formats
from trainmon.analysis.attempts import attempt_of_log, steps
from trainmon.analysis.checkpoints import evals
from trainmon.analysis.checkpoints import listing as checkpoint_listing
from trainmon.analysis.runs import RunContext, is_running, is_trained_elsewhere, skew_of, trainer, with_commits
from trainmon.analysis.wandb import log_curves
from trainmon.analysis.wandb.active_run import counts, without_own_borrowed, without_wandb_steps
from trainmon.engine.reducers import jobs
from trainmon.engine.reducers.batch import EventBatch
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant, Seconds, last_state
from trainmon.model import (
    LOG_LINES,
    LOG_MARK,
    ON_NODE,
    RECENT_LOSSES,
    AnyReading,
    Attempt,
    CheckpointListing,
    CurvesGrew,
    Disk,
    DiskSample,
    DiskSamples,
    DisksReleased,
    FileContent,
    Hello,
    Log,
    LogChunk,
    NodeReading,
    OtherLog,
    Progress,
    Quota,
    QuotaRead,
    Receipts,
    Run,
    RunMemory,
    StepNumbers,
    StepSpan,
    Switch,
    SwitchSample,
    SwitchSamples,
    armed_by,
    says,
)

# ---- disks and quotas ------------------------------------------------------------------------------------------------

UNWATCHED_AFTER = 90.0
"""Seconds without a sample after which a disk is dropped, if its host still reports other disks: the host read it as a
stand-in. Watched disks are sampled every 10 s, hung ones every 30 s. While SSH fails, Prometheus may report others."""


def sampled(batch: EventBatch, event: NodeReading, samples: tuple[DiskSample, ...]) -> None:
    disks, usable, lags = batch.writable("disks"), batch.current("usable"), batch.current("lags")
    quotas = batch.current("quotas")
    for sample in samples:
        disk = _disk(event, sample, usable.get(sample.path, 1.0), disks.get(f"{event.node}:{sample.path}"))
        if disk.key in batch.current("released_disks"):
            del batch.writable("released_disks")[disk.key]
        disks[disk.key] = replace(disk, lag=lags.get(disk.path, 0.0), quota=_quota_of(quotas, disk))
    node = batch.current("nodes").get(event.node)
    is_failing = node is not None and "ssh" in node.troubles
    for key, disk in list(disks.items()):
        if disk.host == event.node and event.received_at - disk.at > UNWATCHED_AFTER and not is_failing:
            del disks[key]


def released(batch: EventBatch, event: DisksReleased, now: Instant) -> None:
    """Drop the disks that a stand-in has read, as the first host reads them again, and those that are named by their
    mounts now."""
    for path in event.disks:
        key = f"{event.node}:{path}"
        batch.writable("disks").pop(key, None)
        batch.writable("released_disks")[key] = now


def quota_read(batch: EventBatch, event: QuotaRead) -> None:
    """Apply the answer of a quota command to the disks of its path."""
    quota = event.quota
    batch.writable("quotas")[f"{quota.cluster if event.shared else quota.host}:{quota.path}"] = quota
    for key, disk in batch.current("disks").items():
        if disk.path == quota.path and _quota_of(batch.current("quotas"), disk) is quota:
            batch.writable("disks")[key] = replace(disk, quota=quota)


def _quota_of(quotas: Mapping[str, Quota], disk: Disk) -> Quota | None:
    return quotas.get(disk.key) or quotas.get(f"{disk.cluster}:{disk.path}")


def _disk(event: NodeReading, sample: DiskSample, usable: float, old: Disk | None) -> Disk:
    """The disk after a sample. It keeps its trend until the next forecast, and its mount while it does not answer."""
    reserve = 0 if sample.total_bytes is None else round(sample.total_bytes * (1 - usable))
    old = old or Disk(path=sample.path, host=event.node, cluster=event.cluster, at=event.received_at)
    changes = asdict(sample) | {
        "cluster": event.cluster,
        "at": event.received_at,
        "error": None if sample.error is None else cleaned(sample.error),
        "mount": sample.mount or old.mount,
        "filesystem": sample.filesystem or old.filesystem,
        "writable_at": event.received_at if sample.read_only is False else old.writable_at,
        "usable_free_bytes": None if sample.free_bytes is None else max(0, sample.free_bytes - reserve),
    }
    return replace(old, **changes)


# ---- new lines of a log → the log, the progress and the memory of its run --------------------------------------------

RESTARTED = {
    "truncated": f"{LOG_MARK}the log was truncated ────",
    "replaced": f"{LOG_MARK}the log was replaced ────",
    "newer": f"{LOG_MARK}a newer log ────",
}


def logged(
    run: Run, event: NodeReading, chunk: LogChunk, formats: tuple[log_formats.Format, ...]
) -> tuple[Run, list[CurvesGrew]]:
    """The run with the new lines of its log, and the points of the curves that they show."""
    log = run.log or Log(host=event.node)
    grown = tuple(cleaned(line) for line in chunk.lines)
    is_repeated = log.resync or log.host != event.node or _is_repeated(log, chunk)
    if is_repeated:
        grown = new_lines(log.lines, grown)
    mark = () if chunk.restarted is None or log.at is None else (RESTARTED[chunk.restarted],)
    lines = (*log.lines, *mark, *grown)
    if len(grown) < len(chunk.lines):  # repeated steps are no progress
        chunk = replace(chunk, lines=chunk.lines[len(chunk.lines) - len(grown) :], kept=())
    at = written_at(event, chunk, log if grown else None)
    is_same_file = chunk.restarted is None and chunk.path in (None, log.path)
    if not is_same_file:  # what its counter counted to before is not known to be the target of this start
        run = replace(run, progress=replace(run.progress, counts="run", target_step=None))
    began_at, pause_s = (log.began_at, log.pause_s) if is_same_file else (None, 0.0)
    is_new = chunk.restarted is not None or (log.is_new if began_at is not None else _was_missing(run.log))
    if is_same_file and chunk.seen and log.at is not None and log.checked_at is not None:
        pause_s = max(pause_s, log.checked_at - log.at)  # no line had come when it was last read
    first_at = log.first_at if began_at is not None else None
    is_backlog = is_repeated or not is_same_file or log.checked_at is None  # nobody saw how fast it was written
    elapsed = 0.0 if is_backlog else event.received_at - (log.checked_at or 0.0)
    first = log.first + len(log.lines) + len(mark)
    ahead = chunk.t - event.received_at
    others = tuple(OtherLog(one.path, min(event.received_at, one.written_at - ahead)) for one in chunk.others)
    progress, memory, said, rows = _progress(run, chunk, first, at or event.received_at, ahead, formats)
    grew = log_curves.grown(run, rows, log_curves.dated(rows, progress, at or event.received_at), event.received_at)
    for one in grew:
        run = replace(run, log_metrics=log_curves.with_points(run, one, event.node))
    numbers = (*log.numbers, *[None] * len(mark), *said[: len(chunk.lines)])
    if began_at is None and not is_new and at is not None and not _begins_again(memory.spans, chunk):
        first_at = _first_written(chunk, at, -ahead)
    run = replace(
        run,
        memory=memory,
        log=Log(
            host=event.node,
            path=chunk.path or log.path,
            path_before=log.path if mark else log.path_before,
            at=at if chunk.seen or chunk.partial is not None or log.at is None else log.at,
            modified_at=written_at(event, chunk, None),
            checked_at=event.received_at,
            began_at=_began(event, chunk, log, at if is_new else None) if began_at is None else began_at,
            is_new=is_new,
            is_local=chunk.local,
            first_at=first_at,
            pause_s=pause_s,
            size=chunk.size if chunk.size is not None else log.size,
            lines=lines[-LOG_LINES:],
            first=log.first + max(0, len(lines) - LOG_LINES),
            numbers=numbers[-LOG_LINES:],
            partial_numbers=_last_said(chunk.partial or "", said[len(chunk.lines) :]),
            partial=None if chunk.partial is None else cleaned(last_state(chunk.partial)),
            dropped=log.dropped + chunk.dropped,
            lines_per_s=chunk.seen / elapsed if elapsed else log.lines_per_s,
            error=None if chunk.error is None else cleaned(chunk.error),
            others=others if others or not is_same_file else log.others,
        ),
        progress=progress,
    )
    return run, grew


def _last_said(partial: str, said: Sequence[StepNumbers | None]) -> StepNumbers | None:
    """What the last state of an unfinished line says; see last_state. `said`: what each of its states says."""
    states = zip(partial.split("\r"), said, strict=False)
    return next((numbers for text, numbers in reversed([*states]) if text.strip()), None)


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


def written_at(event: NodeReading, chunk: LogChunk, before: Log | None) -> Instant | None:
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
    run: Run, chunk: LogChunk, first: int, at: Instant, ahead: Seconds, formats: tuple[log_formats.Format, ...]
) -> tuple[Progress, RunMemory, list[StepNumbers | None], list[log_curves.Row]]:
    """Also what each of its lines says, and the rows of its curves. `first`: the number of its first line. `ahead`: how
    far the clock of its host is ahead of ours."""
    progress, shape, last, said = run.progress, run.memory.shape, None, list[StepNumbers | None]()
    spans, rows = run.memory.spans, list[log_curves.Row]()
    if chunk.restarted is not None or ((run.log is None or _was_missing(run.log)) and _is_whole(chunk)):
        spans = steps.with_start(spans, at, first)
    losses = list(run.memory.unjudged)
    is_first = progress.at is None or counts(progress)
    lines = [*chunk.kept, *chunk.lines, *([] if chunk.partial is None else chunk.partial.split("\r"))]
    times = cache(partial(log_formats.written, [*chunk.kept, *chunk.lines], at, ahead))
    for index, text in enumerate(lines, start=-len(chunk.kept)):
        is_finished = index < len(chunk.lines)
        spans = steps.with_line(spans, text, at, first + index)
        is_former = len(chunk.lines) <= index < len(lines) - len(chunk.kept) - 1  # a carriage return ends it
        is_whole = is_finished or is_former
        found, shape = log_formats.read_line(text, progress, shape, at, formats, is_finished=is_whole)
        said.append(None if found is None else StepNumbers(found[1].step, found[1].target_step, found[1].loss))
        if found is not None:
            after = log_formats.advance(without_wandb_steps(progress, found[1]), *found, at)
            if is_former and (after.step or 0) <= (progress.step or 0):
                continue  # a bar that was read before: an unfinished line comes again and again
            has_moved = (after.step, after.epoch) != (progress.step, progress.epoch)
            if has_moved and is_finished and after.step is not None and not (after.bar or after.counts == "epoch"):
                spans = steps.with_step(spans, after.step, at, after.cadence_s, first + index)
                if steps.is_first(spans):
                    spans = (*spans[:-1], replace(spans[-1], written_at=times()[index + len(chunk.kept)]))
            dated = times()[index + len(chunk.kept)] if is_first and index < len(chunk.lines) else None
            if (row := log_curves.row(progress, after, text, dated, spans)) is not None:
                rows.append(row)
            last = index if is_finished and has_moved else last
            progress = after
            if has_moved or losses:
                is_odd = is_finished and not math.isfinite(after.loss or 0.0)
                _add_loss(losses, after, times()[index + len(chunk.kept)] if is_odd else None)
        if index == len(chunk.lines) - 1 and is_first and last is not None and last >= 0 and progress.at is not None:
            progress = replace(progress, at=times()[last + len(chunk.kept)] or progress.at)
    memory, unjudged = run.memory, tuple(losses[-RECENT_LOSSES:])
    if shape != memory.shape or unjudged != memory.unjudged or spans is not memory.spans:
        memory = replace(memory, shape=shape, unjudged=unjudged, spans=spans)
    return without_own_borrowed(progress), memory, said[len(chunk.kept) :], rows


def _was_missing(log: Log | None) -> bool:
    """Whether the last look found no file."""
    return log is not None and log.path is None and says(log.error, "missing")


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


def _add_loss(losses: list[tuple[int | None, float, Instant | None]], progress: Progress, at: Instant | None) -> None:
    """Add the loss of a step, and the time in its line. A later line of the same step may correct it. W&B's losses are
    judged with its curve."""
    if losses and losses[-1][0] == progress.step:
        losses.pop()
    if progress.loss is not None and "loss" in progress.printed and "loss" not in progress.borrowed:
        losses.append((progress.step, progress.loss, at))


# ---- readings about files --------------------------------------------------------------------------------------------

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
            sampled(batch, event, samples)
        case LogChunk() as chunk:
            run = batch.current("runs").get(chunk.id.removeprefix(ON_NODE))
            if run is not None and not _is_read_elsewhere(run, event, chunk):
                batch.writable("runs")[run.name], grew = logged(run, event, chunk, batch.formats)
                batch.grown += grew
            elif (ended := attempt_of_log(chunk.id, batch.current("attempts"))) is not None:
                _read_unseen(batch, event, chunk, ended)
            else:
                _evaluated(batch, chunk)
        case CheckpointListing() as listing:
            _listed(batch, event, listing)
        case FileContent(id=name) as content if name.startswith(trainer.PREFIX):
            _reported(batch, event, content)
        case FileContent() as content:
            jobs.attempt_file_read(batch, content, event.received_at, skew=skew_of(event.node, batch.current("nodes")))
        case Receipts() as listing:
            jobs.receipts_read(batch, event, listing)
        case SwitchSamples(s=switches):
            for switch in switches:
                _switched(batch, event, switch, skew=skew_of(event.node, batch.current("nodes")))


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
    found = trainer.read_status(content, event.node, skew_of(event.node, batch.current("nodes")))
    if run is not None and found is not None and _reads_for(batch, event, run):
        batch.writable("runs")[run.name] = replace(run, trainer=found)


def _read_unseen(batch: EventBatch, event: NodeReading, chunk: LogChunk, attempt: Attempt) -> None:
    """Read the log of an attempt that ended unseen as if a run followed it."""
    run = batch.current("runs").get(attempt.run_id)
    if run is not None:
        read, _ = logged(Run(spec=run.spec), event, chunk, batch.formats)
        jobs.unseen_log_read(batch, attempt, read, event.received_at)


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
                skew=skew_of(event.node, batch.current("nodes")),
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
            skew=skew_of(known.host, batch.current("nodes")),
            before=known,
        )
        if again != known:
            batch.writable("runs")[name] = replace(run, checkpoints=again)


def _switched(batch: EventBatch, event: NodeReading, sample: SwitchSample, skew: float) -> None:
    for name, run in batch.current("runs").items():
        paths = (run.spec.kill_switch, run.spec.save_switch)
        if sample.path in paths and _reads_for(batch, event, run):
            field = ("kill", "save")[paths.index(sample.path)]
            batch.writable("runs")[name] = replace(run, **{field: _switch(getattr(run, field), sample, event, skew)})


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
