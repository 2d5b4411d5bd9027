"""The State → what it shows of the attempts of its runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.observe.earlier_starts import of_earlier_starts
from trainmon.analysis.attempts.observe.jobs import is_begun, is_requeued, of_job
from trainmon.analysis.attempts.observe.sources import may_have_jobs, may_have_others
from trainmon.analysis.attempts.observe.unwatched_jobs import of_unwatched_jobs
from trainmon.analysis.attempts.observe.without_scheduler import (
    of_log,
    of_other_logs,
    of_process,
    of_receipts,
    of_wandb,
)
from trainmon.analysis.attempts.steps import AFTER, BEFORE
from trainmon.analysis.runs import last_attempts
from trainmon.model import Attempt, Run, State


def observed(state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """What is seen now of every attempt that is not closed for good. A run that has a scheduler has its jobs' attempts
    only; else its process and the receipts of earlier ones tell them apart, else its receipts, else W&B, else its
    log."""
    unwatched = [*of_unwatched_jobs(state, known)]
    yield from unwatched
    newest = last_attempts(one for one in (*known.values(), *unwatched) if one.job_id is not None)
    for run in state.runs.values():
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


def _is_of_job(run: Run, newest: Mapping[str, Attempt]) -> bool:
    """Whether the log of a run without a job in the queue is that of the last job that it had."""
    one, log = newest.get(run.name), run.log
    if one is None or log is None or log.at is None:
        return False
    end = one.end or one.reported_end
    return one.start - BEFORE <= log.at <= (one.seen_at if end is None else end.at) + AFTER
