"""The State → what it shows of the attempts of its runs, and those before a process that was found. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.observe.jobs import (
    attempt_of,
    is_begun,
    is_requeued,
    is_restored,
    may_have_jobs,
    may_have_others,
    of_job,
    with_names,
    with_run,
)
from trainmon.analysis.attempts.observe.unwatched_jobs import of_unwatched_jobs
from trainmon.analysis.attempts.observe.without_scheduler import (
    OLD,
    of_log,
    of_other_logs,
    of_process,
    of_receipts,
    of_wandb,
)
from trainmon.analysis.attempts.steps import AFTER, BEFORE
from trainmon.analysis.runs import last_attempts
from trainmon.analysis.wandb import client_file
from trainmon.model import Attempt, AttemptEnd, Receipt, Run, State

# ---- the attempts before a process that was found on the GPUs of a machine -------------------------------------------


def of_earlier_starts(run: Run, own: Attempt, state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """The attempts of a run that were over before its process was found. `own`: the attempt of that process."""
    if not state.receipts or not is_restored(state):
        return
    groups = receipts.of_run(run, state)
    mine = [own, *(one for one in known.values() if one.run_id == run.name and one.pid is not None)]
    for index, group in enumerate(groups):
        following = groups[index + 1][0].started_at if index + 1 < len(groups) else own.started_at
        end = receipts.end_of(group, run, state, following)
        if end is None or state.at - end.at > OLD or any(_is_of(group, end, one, state) for one in mine):
            continue
        before = known.get(f"{run.name}/receipt/{group[0].name}")
        if before is None or before.end is None or not receipts.is_as_good(before.end, end):
            yield _attempt(run, group, end, state)


def _is_of(group: Sequence[Receipt], end: AttemptEnd, attempt: Attempt, state: State) -> bool:
    """Whether these receipts, which are over, are those of the attempt of a process: its own, or it began while they
    ran. A process that still runs is none of theirs."""
    if not {one.name for one in group}.isdisjoint(one.name for one in receipts.of_attempt(attempt, state)):
        return True
    is_over = attempt.end is not None or attempt.reported_end is not None
    return is_over and attempt.receipt is None and group[0].started_at - receipts.SURELY_NEAR <= attempt.start <= end.at


def _attempt(run: Run, group: Sequence[Receipt], end: AttemptEnd, state: State) -> Attempt:
    began = group[0].started_at
    attempt = attempt_of(run, f"receipt/{group[0].name}", end.at)
    attempt = replace(attempt, started_at=began, start_was_watched=began >= state.started_at, end=end)
    attempt = with_run(with_names(attempt, run, group[-1].command), run, state, began, is_newest=False)
    return receipts.applied(attempt, group)


# ---- the State → what it shows of the attempts of its runs -----------------------------------------------------------


def observed(state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """What is seen now of every attempt that is not closed for good. A run that has a scheduler has its jobs' attempts
    only; else its process and the receipts of earlier ones tell them apart, else its receipts, else W&B, else its
    log."""
    unwatched = [*of_unwatched_jobs(state, known)]
    yield from unwatched
    newest = last_attempts(one for one in (*known.values(), *unwatched) if one.job_id is not None)
    for run in map(_with_client_file, state.runs.values()):
        jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
        begun = [job for job in jobs if is_begun(job) and not is_requeued(job, state.at)]
        if begun := sorted(begun, key=lambda job: job.started_at or 0.0):
            for job in begun:
                if (found := of_job(job, run, state, known, is_newest=job is begun[-1])) is not None:
                    yield found
        elif run.spec.process is not None:
            for own in of_process(run, state):
                yield own
                yield from of_earlier_starts(run, own, state, known)
        elif jobs:
            continue
        elif groups := receipts.of_run(run, state):
            yield from of_receipts(run, groups, state, known)
        elif may_have_jobs(run, state) or _is_of_job(run, newest):
            continue
        elif run.wandb is not None:
            yield from (one for each in run.wandb.runs if (one := of_wandb(run, each, state, known)) is not None)
        elif run.log is not None and run.log.path is not None and not may_have_others(run, state):
            yield of_log(run, run.log.path, state, known)
            yield from of_other_logs(run, state, known)


def _with_client_file(run: Run) -> Run:
    """The run with the files of its W&B client in place of W&B's server, if it has neither that nor a log."""
    return run if run.spec.wandb or run.spec.log else replace(run, wandb=client_file.of_file(run.wandb_file))


def _is_of_job(run: Run, newest: Mapping[str, Attempt]) -> bool:
    """Whether the log, or the file of the W&B client, of a run without a job in the queue is that of its last job."""
    one, log, file = newest.get(run.name), run.log, run.wandb_file
    at = log.at if log is not None else file.written_at if file is not None else None
    if one is None or at is None:
        return False
    end = one.end or one.reported_end
    return one.start - BEFORE <= at <= (one.seen_at if end is None else end.at) + AFTER
