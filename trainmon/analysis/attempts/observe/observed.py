"""The State → what it shows of the attempts of its runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.observe.jobs import is_begun, of_job
from trainmon.analysis.attempts.observe.sources import may_have_jobs, may_have_others
from trainmon.analysis.attempts.observe.without_scheduler import of_log, of_process, of_receipts, of_wandb
from trainmon.model import Attempt, State


def observed(state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """What is seen now of every attempt that is not closed for good. A run that has a scheduler has its jobs' attempts
    only; else its process tells them apart, else its receipts, else W&B, else its log."""
    for run in state.runs.values():
        jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
        if begun := sorted((job for job in jobs if is_begun(job)), key=lambda job: job.started_at or 0.0):
            for job in begun:
                if (found := of_job(job, run, state, known, is_newest=job is begun[-1])) is not None:
                    yield found
        elif run.spec.process is not None:
            yield from of_process(run, state)
        elif jobs:
            continue
        elif groups := receipts.of_run(run, state):
            yield from of_receipts(run, groups, state, known)
        elif may_have_jobs(run, state):
            continue
        elif run.wandb is not None:
            yield from (one for each in run.wandb.runs if (one := of_wandb(run, each, state, known)) is not None)
        elif run.log is not None and run.log.path is not None and not may_have_others(run, state):
            yield of_log(run, run.log.path, state, known)
