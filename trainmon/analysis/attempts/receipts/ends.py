"""What the receipts of an attempt tell of it and of its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from trainmon.analysis.attempts import provenance
from trainmon.analysis.attempts.receipts.owners import is_beside
from trainmon.lib import Instant
from trainmon.model import Attempt, AttemptEnd, Receipt, Run, State

RECEIPT = "receipt "
"""How the evidence of a receipt begins."""


def newest_of(own: Sequence[Receipt]) -> Sequence[Receipt]:
    """The newest receipt and those that ran at the same time: a script may run one command after the other."""
    return [one for one in own if one is own[-1] or is_beside(own[-1], one)]


def deciding(own: Sequence[Receipt]) -> Receipt | None:
    """The receipt whose exit code counts: of several ranks, the one that failed first. None while none has failed and
    some have no end."""
    last = newest_of(own)
    failed = [one for one in last if one.ended_at is not None and (one.exit_code or one.signal)]
    if failed:
        return min(failed, key=lambda one: (one.ended_at or 0.0, one.name))
    return last[-1] if all(one.ended_at is not None for one in last) else None


def applied(attempt: Attempt, own: Sequence[Receipt]) -> Attempt:
    """The attempt with what its receipts tell."""
    if not own:
        return attempt
    newest = own[-1]
    is_its_log = newest.log_path is not None and attempt.log_path in (None, newest.log_path)
    if is_its_log:
        offsets = [
            one.log_offset for one in newest_of(own) if one.log_path == newest.log_path and one.log_offset is not None
        ]
        attempt = replace(attempt, log_path=newest.log_path, log_offset=min(offsets, default=None))
    attempt = replace(
        attempt,
        receipt=newest.name,
        log_by_srun=attempt.log_by_srun or newest.log_by_srun,
        end=None if attempt.end is None else ended(attempt.end, own),
    )
    attempt = provenance.with_named(attempt, "receipt", {"command": newest.command, "git_commit": newest.git_commit})
    return provenance.with_named(attempt, "environment", {"data_manifest": newest.data_manifest})


def ended(end: AttemptEnd, own: Sequence[Receipt]) -> AttemptEnd:
    """The end with the exit code and signal of the receipts, unless a script has gone on after its command."""
    found = deciding(own)
    if found is None:
        gone = next((one for one in newest_of(own) if one.gone_at is not None), None)
        return end if gone is None else replace(end, cut_receipt=gone.name)
    has_failed, state = bool(found.exit_code or found.signal), (end.scheduler_state or "").partition(" ")[0]
    if state == "COMPLETED" if has_failed else state == "FAILED" and bool(end.exit_code or end.signal):
        return end
    times = [one.ended_at for one in own if one.ended_at is not None]
    if end.source in ("lost", "process") and len(times) == len(own):  # those are only signs that it is over
        end = replace(end, at=max(times))
    return replace(end, exit_code=found.exit_code, signal=found.signal, receipt=found.name, receipts=len(times))


def end_of(
    own: Sequence[Receipt], run: Run, state: State, following: Instant | None, *, is_gone: bool = False
) -> AttemptEnd | None:
    """The end of an attempt, by its receipts; None while one of its commands runs, unless its job is gone. The end of a
    command that was killed with trainmon-run is not known exactly: its log was written before, and the next one began
    after."""
    if not own or not (is_gone or all(one.is_over for one in own)):
        return None
    began, log = own[0].started_at, run.log
    at = max((one.ended_at for one in own if one.ended_at is not None), default=None)
    if at is None:
        is_its_log = log is not None and following is None and own[-1].log_path in (None, log.path)
        written = log.at if log is not None and is_its_log and (log.at or 0.0) >= began else None
        at = min((one for one in (written, following, own[-1].gone_at) if one is not None), default=own[-1].started_at)
    end = AttemptEnd(at=at, source="receipt", noticed_at=state.at, was_watched=at >= state.started_at)
    if not all(one.is_over for one in own):
        end = replace(end, source="lost")
    return ended(end, own)


def is_as_good(known: AttemptEnd, found: AttemptEnd) -> bool:
    """Whether the new end adds nothing."""
    return found.receipts <= known.receipts and (found.cut_receipt is None or known.cut_receipt is not None)


def evidence(end: AttemptEnd) -> str | None:
    """What the receipt says of the end."""
    if end.receipt is not None:
        how = f"signal {end.signal}" if end.signal else f"exit status {end.exit_code}"
        return f"{RECEIPT}{end.receipt}: {how}"
    if end.cut_receipt is not None:
        return f"{RECEIPT}{end.cut_receipt}: no end; the command was killed together with trainmon-run"
    return None
