"""The attempts so far and jobs from accounting → the attempts now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.ending import closed, end_of, is_over, is_settled
from trainmon.analysis.attempts.merge import SAME_START, adopted
from trainmon.analysis.attempts.observe.jobs import is_begun, job_attempt, job_attempt_id
from trainmon.analysis.attempts.observe.unwatched_jobs import with_own_lines
from trainmon.analysis.attempts.steps import has_newer, is_read
from trainmon.analysis.runs import jobs_of
from trainmon.model import Attempt, Job, Run, State


def with_accounted(
    known: Mapping[str, Attempt], jobs: Iterable[Job], state: State
) -> tuple[Mapping[str, Attempt], tuple[Job, ...]]:
    """The attempts with the ends of jobs from accounting, the earlier attempts of requeued ones included, and the jobs
    whose log and checkpoints are still to be read. Attempts that this program has not watched are opened and closed at
    once."""
    found, jobs, waiting = dict(known), tuple(jobs), []
    state = replace(state, accounted=jobs)  # one shows that a log is not that of another
    for run in state.runs.values():
        peers = {job_attempt_id(job): _ended(job, run, state) for job in jobs_of(run.spec, jobs) if job.ends_at}
        for job in jobs_of(run.spec, jobs):
            found = adopted(found, job_attempt(job, run), state)
            before = _attempt_of(job, found)
            if not is_begun(job) or not is_over(job) or job.ends_at is None:
                continue
            if before is not None and before.end is not None and before.end.source == "accounting":
                continue
            seen = replace(peers[job_attempt_id(job)], seen_at=job.ends_at)
            seen = receipts.applied(seen, receipts.of_attempt(seen, state))
            assert seen.end is not None
            end = seen.end
            if before is not None:
                seen = replace(seen, attempt_id=before.attempt_id, restart=before.restart)
            is_newest = not has_newer(seen, found.values())
            if is_newest and (before is None or before.is_open) and not is_settled(seen, end, run, state):
                waiting.append(job)
                continue
            end = replace(end, awaits_log=not is_newest or not is_read(seen, end, run, state))
            seen = replace(seen, end=end)
            seen, lines = with_own_lines(seen, run, state, {**peers, **found}, is_newest=is_newest)
            found[seen.attempt_id] = closed(seen, lines, before=before, state=state)
    return found, tuple(waiting)


def _ended(job: Job, run: Run, state: State) -> Attempt:
    """The attempt of a job in accounting: when it began and ended."""
    end = end_of(job, None, state)
    return replace(job_attempt(job, run), end=None if end is None else replace(end, source="accounting"))


def _attempt_of(job: Job, known: Mapping[str, Attempt]) -> Attempt | None:
    """The attempt of a job in accounting, which does not count restarts: the one that was queued and started then."""
    return next(
        (
            one
            for one in known.values()
            if (one.cluster, one.job_id, one.submitted_at) == (job.cluster, job.id, job.submitted_at)
            and abs((one.started_at or 0.0) - (job.started_at or 0.0)) <= SAME_START
        ),
        known.get(job_attempt_id(job)) or next((one for one in known.values() if _is_by_receipts(one, job)), None),
    )


def _is_by_receipts(one: Attempt, job: Job) -> bool:
    """Whether it is the attempt of that job that only its receipts have shown: they do not say when it was queued."""
    if (one.cluster, one.job_id, one.submitted_at) != (job.cluster, job.id, None) or one.started_at is None:
        return False
    return (job.started_at or 0.0) - receipts.NEAR <= one.started_at <= (job.ends_at or one.started_at)
