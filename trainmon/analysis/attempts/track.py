"""The attempts so far and a State → the attempts now: opened, updated, closed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.analysis.attempts.ending import ACCOUNTING_LAGS, confirmed, is_settled, lines_of, lost, with_cause
from trainmon.analysis.attempts.merge import merged
from trainmon.analysis.attempts.observe import observed
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, AttemptEnd, State

STAY: Seconds = 7 * 86_400.0
"""How long an attempt that has ended stays in the State."""

AT_MOST = 10_000
"""More than a sweep starts in a week. An attempt whose job is still listed must stay, or it would be opened again."""


def track(known: Mapping[str, Attempt], state: State) -> Mapping[str, Attempt]:
    """The attempts after this State; the same mapping if nothing has changed. An attempt is closed once: what comes
    later only adds to its end."""
    found = dict(known)
    for seen in (*observed(state, known), *_left(known, state)):
        before, run = found.get(seen.attempt_id), state.runs.get(seen.run_id)
        if seen.end is not None and run is not None:
            is_closed = before is not None and not before.is_open
            if not is_closed and not is_settled(seen.end, run, state):
                continue
            whole = seen if before is None else merged(replace(before, end=None), seen)
            if before is not None and (end := confirmed(before.end, seen.end)) is not None:
                seen = replace(seen, end=end)
            else:
                lines = lines_of(run.log, is_newest=not has_newer(seen, found.values()))
                seen = with_cause(whole, lines, state)
        found[seen.attempt_id] = seen if before is None else merged(before, seen)
    return found if any(found[name] is not known.get(name) for name in found) else known


def has_newer(attempt: Attempt, others: Iterable[Attempt]) -> bool:
    """Whether its run has started again since."""
    began = attempt.started_at or 0.0
    return any(one.run_id == attempt.run_id and (one.started_at or 0.0) > began for one in others)


def with_stored(known: Mapping[str, Attempt], stored: Iterable[Attempt]) -> Mapping[str, Attempt]:
    """The attempts with those that the ledger holds."""
    found = dict(known)
    for one in stored:
        before = found.get(one.attempt_id)
        found[one.attempt_id] = one if before is None else merged(before, one)
    return found


def unwatched_since(state: State) -> Instant | None:
    """Since when attempts may have been missed: the last time that the ledger knows. Without any, a day is looked up.
    None while the ledger may not have been read yet."""
    if state.at - state.started_at < READ_WITHIN:
        return None
    seen = [one.seen_at for one in state.attempts.values() if one.seen_at < state.started_at]
    return max(seen, default=state.started_at - DAY) - MARGIN


DAY: Seconds = 86_400.0
READ_WITHIN: Seconds = 10.0
MARGIN: Seconds = 3_600.0
"""An attempt that was seen last may have ended before others that were not seen at all."""


def pruned(known: Mapping[str, Attempt], state: State) -> Mapping[str, Attempt]:
    """Without those that ended long ago, and at most AT_MOST."""
    kept = {name: one for name, one in known.items() if one.end is None or state.at - one.end.at < STAY}
    if len(kept) > AT_MOST:
        ordered = sorted(kept.values(), key=lambda one: (one.end is None, one.ended_at or one.seen_at))
        kept = {one.attempt_id: one for one in ordered[-AT_MOST:]}
    return known if len(kept) == len(known) else kept


def _left(known: Mapping[str, Attempt], state: State) -> Iterable[Attempt]:
    """The ends of open attempts that are over although nothing reports their end: the job was requeued, or the
    scheduler no longer knows it; the next attempt of the run has another log, process or W&B run."""
    for one in known.values():
        if not one.is_open:
            continue
        if one.job_id is None:
            if (end := _followed(one, known, state)) is not None:
                yield replace(one, end=end)
            continue
        job = state.jobs.get(f"{one.cluster}/{one.job_id}")
        if job is not None and (job.submitted_at is None or one.submitted_at is None):
            continue
        if job is not None and (job.submitted_at, job.restarts or 0) > (one.submitted_at, one.restart or 0):
            at = (job.submitted_at if job.submitted_at != one.submitted_at else job.started_at) or state.at
            end = AttemptEnd(
                at=at, source="queue", noticed_at=state.at, was_watched=at >= state.started_at, exit_code=0,
                scheduler_state="REQUEUED",
            )  # fmt: skip
            yield replace(one, end=end)
        elif job is None and _is_forgotten(one, state):
            yield replace(one, end=lost(one.seen_at, state))


def _is_forgotten(attempt: Attempt, state: State) -> bool:
    """Whether the scheduler answers and does not list the job, and accounting has had its time."""
    cluster, source = state.clusters.get(attempt.cluster), state.sources.get(f"slurm:{attempt.cluster}")
    if cluster is None or not cluster.is_polled or source is None or source.health != "ok":
        return False
    return cluster.accounting is False or state.at - max(state.started_at, attempt.seen_at) > ACCOUNTING_LAGS


def _followed(attempt: Attempt, known: Mapping[str, Attempt], state: State) -> AttemptEnd | None:
    """The end of an attempt without a job whose run has a newer one of its kind."""
    kind = attempt.attempt_id.removeprefix(f"{attempt.run_id}/").partition("/")[0]
    newer = [
        one
        for one in known.values()
        if one.run_id == attempt.run_id
        and one.attempt_id.startswith(f"{attempt.run_id}/{kind}/")
        and kind in ("log", "pid")
        and one.attempt_id != attempt.attempt_id
        and one.seen_at > attempt.seen_at
        and (one.started_at or 0.0) > (attempt.started_at or 0.0)
    ]
    return lost(attempt.seen_at, state) if newer else None
