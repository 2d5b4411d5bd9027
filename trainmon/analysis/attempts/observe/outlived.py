"""Trainers that outlived their jobs: they write steps or checkpoints after the scheduler's end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from trainmon.analysis.attempts.logs import began_at
from trainmon.analysis.attempts.receipts import of_attempt
from trainmon.analysis.gpus import is_read
from trainmon.analysis.runs import last_attempts
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
    """The attempts, with what the last one of each run writes after its end. Once the next attempt has started, all
    steps are those of that one."""
    changed = {}
    for name, attempt in last_attempts(state.attempts.values()).items():
        run, end = state.runs.get(name), attempt.end or attempt.reported_end
        if run is None or end is None or attempt.job_id is None or end.source not in ("queue", "accounting"):
            continue
        found = _watched(attempt, run, state, began_at(end.at, run, state) or end.at)
        if found is not attempt:
            changed[found.attempt_id] = found
    return {**state.attempts, **changed} if changed else state.attempts


def _watched(attempt: Attempt, run: Run, state: State, ended_at: Instant) -> Attempt:
    """The attempt with its last value, if that is a new one, and with whether its trainer still writes. The next value
    counts only if Slurm was asked since the one before: a job that wrote that one would be listed."""
    if any(job.stage == "running" and job.gone_at is None for key in run.jobs if (job := state.jobs.get(key))):
        return attempt  # the next one runs, or this one still saves (COMPLETING)
    source, found = state.sources.get(f"slurm:{attempt.cluster}"), attempt
    asked_at = 0.0 if source is None else source.answered_at or 0.0
    for step, at in _values(attempt, run, ended_at):
        known_at = found.outlived_at or 0.0
        is_late = at > ended_at + OUTLIVES and step > max(found.outlived_step or 0, attempt.last_step or 0)
        if is_late and at - known_at >= (APART if found.outlived_by < 2 else NOTED_EVERY) and asked_at >= known_at:
            is_known = found.outlived_pids and found.outlived_gone_at is None
            pids = found.outlived_pids if is_known else _pids(attempt, state)
            by = found.outlived_by + 1
            found = replace(found, outlived_by=by, outlived_step=step, outlived_at=at, outlived_pids=pids)
    if found.outlived_at is None:
        return found
    written_at = run.log.modified_at if run.log is not None and _is_own(run.log, attempt) else None
    if written_at is not None and written_at - found.outlived_at >= NOTED_EVERY:
        found = replace(found, outlived_at=written_at)
    is_over = (found.outlived_gone_at or 0.0) >= (found.outlived_at or 0.0)
    gone_at = None if is_over else _gone_at(found, run, state)
    return found if gone_at is None else replace(found, outlived_gone_at=gone_at)


def _values(attempt: Attempt, run: Run, ended_at: Instant) -> Iterator[tuple[int, Instant]]:
    """Its newest checkpoint and the newest step of its log, and when each was written, by our clock. If the log shows
    another start after the end, its steps are those of somebody who trains on."""
    log, step, saved = run.log, run.progress.step, run.checkpoints
    if any(one.is_start and one.first_at > ended_at for one in run.memory.spans[1:]):
        return
    newest = None if saved is None or saved.error is not None else saved.committed
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


def _gone_at(attempt: Attempt, run: Run, state: State) -> Instant | None:
    """When its trainer ended: by its GPUs, by its receipts, or by its own status file."""
    assert attempt.outlived_at is not None
    holders = {one.partition("/")[0] for one in attempt.outlived_pids}
    are_read = all(is_read(name, state.nodes, state.sources, state.at) for name in holders)
    if holders and are_read and not {*attempt.outlived_pids} & {*_pids(attempt, state)}:
        return state.at
    own = of_attempt(attempt, state)
    ends = [one.ended_at or one.gone_at for one in own] if own and all(one.is_over for one in own) else []
    ends += [run.trainer.ended_at] if run.trainer is not None else []
    at = max((one for one in ends if one is not None), default=None)
    return state.at if at is not None and at >= attempt.outlived_at - NOTED_EVERY else None
