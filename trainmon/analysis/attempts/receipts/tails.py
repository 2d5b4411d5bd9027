"""The last lines of an attempt that its receipts name. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.analysis.attempts.receipts.ends import deciding, newest_of
from trainmon.analysis.attempts.receipts.owners import of_attempt
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import Attempt, AttemptFile, FileContent, FileSpec, Receipt, State

TAIL = "log_tail"
"""The name of the file with the lines of an attempt among its files."""


def tail_to_read(attempt: Attempt, state: State) -> FileSpec | None:
    """The request for the last lines of an attempt that is over: the copy of them in its receipt, else the part of its
    log. None if there is none, or if its end is not known yet."""
    if attempt.end is None and attempt.reported_end is None:
        return None
    own = of_attempt(attempt, state)
    found = deciding(own) if own else None
    if found is not None and found.tail_path is not None:
        return FileSpec(f"{TAIL} {attempt.attempt_id}", found.tail_path, part=(0, None))
    gone = next((one for one in newest_of(own) if one.gone_at is not None), None) if own else None
    if gone is None or gone.log_path is None or gone.log_offset is None:
        return None
    return FileSpec(f"{TAIL} {attempt.attempt_id}", gone.log_path, part=(gone.log_offset, _next_offset(gone, state)))


def _next_offset(receipt: Receipt, state: State) -> int | None:
    """Where the output of the next command begins in the same file."""
    offsets = (
        one.log_offset
        for own in state.receipts.values()
        for one in own
        if one.log_path == receipt.log_path and one.cluster == receipt.cluster and one.started_at > receipt.started_at
    )
    return min((one for one in offsets if one is not None and one > (receipt.log_offset or 0)), default=None)


def is_awaited(attempt: Attempt, state: State) -> bool:
    """Whether more is to come of the receipts of an attempt that is over: an end, or its last lines."""
    known = state.attempts.get(attempt.attempt_id, attempt)
    own = of_attempt(replace(known, end=attempt.end, receipt=attempt.receipt or known.receipt), state)
    if any(not one.is_over for one in own):
        return True
    return bool(own) and TAIL not in known.files and tail_to_read(attempt, state) is not None


def tail_file(content: FileContent, at: Instant, skew: Seconds) -> AttemptFile:
    """That the last lines were read, or why not."""
    return AttemptFile(
        path=clean(content.path or ""),
        read_at=at,
        error=None if content.error is None else scrub(clean(content.error)),
        size=content.size,
        modified_at=None if content.mtime is None else content.mtime - skew,
    )
