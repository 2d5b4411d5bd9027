"""Who writes the checkpoints of a run: its jobs, those of others in the same directory, and a trainer that outlived its
job. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from posixpath import dirname, normpath

from msgspec.structs import replace

from trainmon.analysis.runs.context import holds_nodes, our_time, skew_of
from trainmon.lib import Instant, Seconds, ago, by_key
from trainmon.model import Attempt, Job, Run, RunMemory, State

SAME: Seconds = 5.0
"""Two listings may date one commit this much apart: clocks are compared anew each time."""

COMMITS = 32
"""How many commits are remembered: at least ten of each of two trainers."""


def sharing(run: Run, runs: Mapping[str, Run]) -> tuple[Run, ...]:
    """The run, and the others that save into the same directory, whatever they call it."""
    places = _directories(run)
    return tuple(one for one in runs.values() if one.name == run.name or places & _directories(one))


def _directories(run: Run) -> frozenset[tuple[str, str]]:
    """The cluster and where the run saves there: as configured, and without symbolic links."""
    path, listing = run.spec.checkpoints, run.listing
    real = listing.real if listing is not None and listing.path == path else None
    return frozenset((run.spec.cluster, normpath(one)) for one in (path, real) if one)


def running(run: Run, state: State) -> Iterator[Job]:
    """The jobs of a run that run now."""
    jobs = (state.jobs.get(key) for key in run.jobs)
    return (job for job in jobs if job is not None and job.stage == "running" and job.gone_at is None)


def writers(run: Run, state: State, without: Collection[str]) -> Iterator[tuple[str, str]]:
    """Whose trainers may write the checkpoints of a run now: the id of a job, and why a second trainer must not start
    beside it. It runs, or its trainer outlived it. Jobs with the keys `without` do not count."""
    for one in sharing(run, state.runs):
        jobs = [(job.id, f"job {job.id} ({job.name}) runs") for job in running(one, state) if job.key not in without]
        if (last := survivor(one, state.attempts.values(), state.at)) is not None:
            jobs.append((last.job_id or "", survivor_text(last, state.at)))
        yield from ((name, f"{why}; both would write to the same checkpoints") for name, why in jobs)


def survivor(run: Run, attempts: Iterable[Attempt], now: Instant) -> Attempt | None:
    """Of the attempts of a run, one whose trainer outlived its job and still runs. While nothing of the run is read, it
    is not known to be silent."""
    log_at = None if run.log is None else run.log.checked_at
    at = min(now, max(log_at or 0.0, 0.0 if run.checkpoints is None else run.checkpoints.listed_at))
    return next((one for one in attempts if one.run_id == run.name and one.is_outlived(at, run.spec.stall_after)), None)


def survivor_text(attempt: Attempt, now: Instant) -> str:
    """`trainer outlived its job 88 (NODE_FAIL, 4m ago): it still writes on n1, last step 70`."""
    ended = attempt.end or attempt.reported_end
    how = "" if ended is None else f" ({ended.scheduler_state or 'ended'}, {ago(now - ended.at)} ago)"
    where = f" on {', '.join(attempt.nodes)}" if attempt.nodes else ""
    return (
        f"trainer outlived its job {attempt.job_id}{how}: it still writes{where}, last step {attempt.outlived_step:,}"
    )


def with_commits(run: Run) -> RunMemory:
    """The memory of a run with the commits that the last listing of its checkpoints shows for the first time."""
    before, found = run.memory.commits, () if run.checkpoints is None else run.checkpoints.list
    last = before[-1][0] + SAME if before else 0.0
    new = [
        (one.at, one.step, f"{one.layout} {dirname(one.path)}")
        for one in found
        if one.is_whole and one.step is not None and one.at is not None and one.at > last
    ]
    return replace(run.memory, commits=(*before, *sorted(new))[-COMMITS:]) if new else run.memory


def two_writers(run: Run, state: State) -> tuple[Job, Job] | None:
    """Two running jobs that both commit steps into the directory of a run: since both run, a step was committed after a
    later one, or two steps a second time. An evaluator makes no steps of its own. A trainer that goes back to an
    earlier checkpoint does the same alone, once; and the log of the second of two trainers shows that, too."""
    together = sharing(run, state.runs) if run.checkpoints is not None and state.jobs else ()
    jobs = {
        job.key: job
        for one in together
        for job in running(one, state)
        if holds_nodes(job) and (one.name == run.name or (one.progress.at or 0.0) > (job.started_at or 0.0))
    }
    if len(jobs) < 2 or run.checkpoints is None:
        return None
    first, second, *_ = sorted(jobs.values(), key=lambda job: job.started_at or 0.0)
    since = our_time(second.started_at, skew_of(run.checkpoints.host, state.nodes)) or state.at
    is_back = any((one.memory.back_at or 0.0) > since for one in together)
    folders = by_key((place, step) for at, step, place in run.memory.commits if at > since).values()
    again = (sum(2 if after < step else after == step for step, after in pairwise(steps)) for steps in folders)
    return (first, second) if max(again, default=0) > (3 if is_back else 1) else None
