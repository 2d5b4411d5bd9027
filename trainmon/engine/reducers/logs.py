"""New lines of a log → the log, the progress and the memory of its run. Pure."""

from __future__ import annotations

from functools import cache, partial

from msgspec.structs import replace

from trainmon.analysis import log_formats
from trainmon.analysis.attempts import steps
from trainmon.analysis.runs.status import NO_LOG
from trainmon.analysis.wandb import progress as wandb_progress
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant, Seconds, last_state
from trainmon.model import (
    LOG_LINES,
    LOG_MARK,
    RECENT_LOSSES,
    Log,
    LogChunk,
    NodeReading,
    OtherLog,
    Progress,
    Run,
    RunMemory,
    StepSpan,
)

RESTARTED = {
    "truncated": f"{LOG_MARK}the log was truncated ────",
    "replaced": f"{LOG_MARK}the log was replaced ────",
    "newer": f"{LOG_MARK}a newer log ────",
}


def logged(run: Run, event: NodeReading, chunk: LogChunk, formats: tuple[log_formats.Format, ...]) -> Run:
    """The run with the new lines of its log."""
    log = run.log or Log(host=event.node)
    grown = tuple(cleaned(line) for line in chunk.lines)
    if log.resync or log.host != event.node or _is_repeated(log, chunk):
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
    elapsed = None if log.checked_at is None else event.received_at - log.checked_at
    first = log.first + len(log.lines) + len(mark)
    ahead = chunk.t - event.received_at
    others = tuple(OtherLog(one.path, min(event.received_at, one.written_at - ahead)) for one in chunk.others)
    progress, memory = _progress(run, chunk, first, at or event.received_at, ahead, formats)
    if began_at is None and not is_new and at is not None and not _begins_again(memory.spans, chunk):
        first_at = _first_written(chunk, at, -ahead)
    return replace(
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
            partial=None if chunk.partial is None else cleaned(last_state(chunk.partial)),
            dropped=log.dropped + chunk.dropped,
            lines_per_s=chunk.seen / elapsed if elapsed else log.lines_per_s,
            error=None if chunk.error is None else cleaned(chunk.error),
            others=others if others or not is_same_file else log.others,
        ),
        progress=progress,
    )


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
) -> tuple[Progress, RunMemory]:
    """`first`: the number of its first line. `ahead`: how far the clock of its host is ahead of ours."""
    progress, shape, last = run.progress, run.memory.shape, None
    spans = run.memory.spans
    if chunk.restarted is not None or ((run.log is None or _was_missing(run.log)) and _is_whole(chunk)):
        spans = steps.with_start(spans, at, first)
    losses = list(run.memory.unjudged)
    is_first = progress.at is None or wandb_progress.counts(progress)
    lines = [*chunk.kept, *chunk.lines, *([] if chunk.partial is None else chunk.partial.split("\r"))]
    times = cache(partial(log_formats.written, [*chunk.kept, *chunk.lines], at, ahead))
    for index, text in enumerate(lines, start=-len(chunk.kept)):
        is_finished = index < len(chunk.lines)
        spans = steps.with_line(spans, text, at, first + index)
        is_former = len(chunk.lines) <= index < len(lines) - len(chunk.kept) - 1  # a carriage return ends it
        is_whole = is_finished or is_former
        found, shape = log_formats.read_line(text, progress, shape, at, formats, is_finished=is_whole)
        if found is not None:
            after = log_formats.advance(wandb_progress.without_wandb_steps(progress, found[1]), *found, at)
            if is_former and (after.step or 0) <= (progress.step or 0):
                continue  # a bar that was read before: an unfinished line comes again and again
            has_moved = (after.step, after.epoch) != (progress.step, progress.epoch)
            if has_moved and is_finished and after.step is not None and not (after.bar or after.counts == "epoch"):
                spans = steps.with_step(spans, after.step, at, after.cadence_s, first + index)
                if steps.is_first(spans):
                    spans = steps.with_time(spans, times()[index + len(chunk.kept)])
            last = index if is_finished and has_moved else last
            progress = after
            if has_moved or losses:
                _add_loss(losses, after)
        if index == len(chunk.lines) - 1 and is_first and last is not None and last >= 0 and progress.at is not None:
            progress = replace(progress, at=times()[last + len(chunk.kept)] or progress.at)
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
