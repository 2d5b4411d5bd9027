"""Trainers that outlived their jobs: they write steps or checkpoints after the scheduler's end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from trainmon.analysis.attempts.receipts import of_attempt
from trainmon.analysis.attempts.steps import began_at
from trainmon.analysis.gpus import is_read
from trainmon.analysis.runs import last_attempts, running, sharing
from trainmon.analysis.wandb import counts
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, Log, Run, State

OUTLIVES: Seconds = 30.0
"""How long after the scheduler's end a trainer may go on. Slurm itself waits 30 s before it kills (KillWait)."""

APART: Seconds = 1.0
"""Values that were written within this time are one: a file server may show at once what was held back."""

NOTED_EVERY: Seconds = 10.0
"""How often it is noted that such a trainer still writes: a change is written to the ledger."""


def with_outlived(state: State) -> Mapping[str, Attempt]:
    """The attempts, with what the last one of each run writes after its end. Once the next one has started, all steps
    are those of that one; then the processes of a trainer show whether it still runs."""
    last, changed = last_attempts(state.attempts.values()), {}
    for attempt in state.attempts.values():
        is_last, run = last[attempt.run_id] is attempt, state.runs.get(attempt.run_id)
        end = attempt.end or attempt.reported_end
        is_by_slurm = end is not None and attempt.job_id is not None and end.source in ("queue", "accounting")
        if not is_by_slurm or end is None or run is None or not (is_last or attempt.outlived_by > 1):
            continue
        is_alone = is_last and not any(running(run, state))  # it may still save, too (COMPLETING)
        found = _written(attempt, run, state, began_at(end.at, run, state) or end.at) if is_alone else attempt
        if (found.outlived_at or 0.0) > (found.outlived_gone_at or 0.0):
            found = _present(found, run, state, is_alone=is_alone)
        if found is not attempt:
            changed[found.attempt_id] = found
    return {**state.attempts, **changed} if changed else state.attempts


def _written(attempt: Attempt, run: Run, state: State, ended_at: Instant) -> Attempt:
    """The attempt with its last value, if that is a new one. The next value counts only if Slurm was asked since the
    one before: a job that wrote that one would be listed."""
    source, found = state.sources.get(f"slurm:{attempt.cluster}"), attempt
    asked_at = 0.0 if source is None else source.answered_at or 0.0
    for step, at in _values(attempt, run, state, ended_at):
        known_at = found.outlived_at or 0.0
        is_late = at > ended_at + OUTLIVES and step > max(found.outlived_step or 0, attempt.last_step or 0)
        if is_late and at - known_at >= (APART if found.outlived_by < 2 else NOTED_EVERY) and asked_at >= known_at:
            is_known = found.outlived_pids and found.outlived_gone_at is None
            pids = found.outlived_pids if is_known else _pids(attempt, state)
            by = found.outlived_by + 1
            found = replace(found, outlived_by=by, outlived_step=step, outlived_at=at, outlived_pids=pids)
    return found


def _present(attempt: Attempt, run: Run, state: State, *, is_alone: bool) -> Attempt:
    """The attempt with when its trainer was last seen: by what it writes, or, while another one writes, on its GPUs.
    Or with its end: by its GPUs, by its receipts, or by its own status file."""
    assert attempt.outlived_at is not None
    holders = {one.partition("/")[0] for one in attempt.outlived_pids}
    are_read = all(is_read(name, state.nodes, state.sources, state.at) for name in holders)
    is_there = not {*attempt.outlived_pids}.isdisjoint(_pids(attempt, state))
    own = of_attempt(attempt, state)
    ends = [one.ended_at or one.gone_at for one in own] if all(one.is_over for one in own) else []
    ends += [run.trainer.ended_at] if run.trainer is not None and is_alone else []
    is_over = any(at is not None and at >= attempt.outlived_at - NOTED_EVERY for at in ends)
    if is_over or (holders and are_read and not is_there):
        return replace(attempt, outlived_gone_at=state.at)
    log = run.log if run.log is not None and _is_own(run.log, attempt) else None
    seen_at = (None if log is None else log.modified_at) if is_alone else state.at if is_there else None
    is_later = seen_at is not None and seen_at - attempt.outlived_at >= NOTED_EVERY
    return replace(attempt, outlived_at=seen_at) if is_later else attempt


def _values(attempt: Attempt, run: Run, state: State, ended_at: Instant) -> Iterator[tuple[int, Instant]]:
    """Its newest checkpoint and the newest step of its log, and when each was written, by our clock. If the log shows
    another start after the end, its steps are those of somebody who trains on. While a job of another run saves into
    the same directory, the checkpoints may be those of that one."""
    log, step, saved = run.log, run.progress.step, run.checkpoints
    if any(one.is_start and one.first_at > ended_at for one in run.memory.spans[1:]):
        return
    is_shared = any(any(running(one, state)) for one in sharing(run, state.runs))
    newest = None if saved is None or saved.error is not None or is_shared else saved.committed
    if newest is not None and newest.step is not None and newest.at is not None and attempt.counts_steps is not False:
        yield newest.step, newest.at
    is_counted = log is not None and _is_own(log, attempt) and not counts(run.progress)
    if is_counted and log is not None and log.modified_at is not None and step is not None:
        yield step, log.modified_at


def _is_own(log: Log, attempt: Attempt) -> bool:
    return attempt.log_path in (None, log.path)


def _pids(attempt: Attempt, state: State) -> tuple[str, ...]:
    """The processes of its user on the GPUs of its nodes, as far as they are read."""
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    nodes = [name for name in attempt.nodes if is_read(name, state.nodes, state.sources, state.at)]
    found = ((name, one) for name in nodes for gpu in state.nodes[name].gpus for one in gpu.processes)
    return tuple(sorted({f"{name}/{one.pid}" for name, one in found if job is None or one.user == job.user}))
