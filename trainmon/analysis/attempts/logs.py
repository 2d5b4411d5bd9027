"""Whose log the followed one is, and its lines. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.steps import AFTER, BEFORE, SECOND
from trainmon.analysis.runs import our_time
from trainmon.lib import Instant, Seconds
from trainmon.model import LOG_MARK, Attempt, AttemptEnd, Log, Run, State

SETTLE: Seconds = 2.0
"""A log is read to its end when it was read this long after the end of its job, and after the start of this program."""

NUMBERS = re.compile(r"\d+(?:_\d+)?")
"""How a file name such as `slurm-88.out` or `88_3.log` names its job."""


def began_at(started_at: Instant | None, run: Run, state: State) -> Instant | None:
    """When a job began, by our clock."""
    host = state.nodes.get(run.log.host) if run.log is not None else None
    return our_time(started_at, (host.clock_skew_s or 0.0) if host is not None else 0.0)


def latest_of(attempt: Attempt, run: Run, state: State, known: Mapping[str, Attempt] | None = None) -> Instant:
    """Until when, by our clock, its lines, steps and checkpoints are dated: until the next attempt of its run begins,
    and at most a minute after its end."""
    if attempt.end is None:
        return state.at + AFTER
    until = attempt.end.at
    jobs = (state.jobs[key].started_at for key in run.jobs if key in state.jobs)
    others = (one.started_at for one in (known or state.attempts).values() if one.run_id == run.name)
    began = attempt.started_at or until
    later = (began_at(at, run, state) or at for at in (*jobs, *others) if at is not None and at > began)
    return max(until + SECOND, min((until + AFTER, *(at - BEFORE for at in later))))


def owns_log(attempt: Attempt, run: Run, state: State) -> bool:
    """Whether the followed log is that of the newest attempt of a run. While a new log is not followed yet, it is still
    that of an earlier job, or of none."""
    log = run.log
    if log is None or (log.path and (attempt.job_id is None or log.path == attempt.log_path)):
        return True
    if log.path and log.path != run.spec.log and _is_of_other_job(log.path, attempt, run, state):
        return False
    return log.at is not None and log.at >= (began_at(attempt.started_at, run, state) or 0.0) - BEFORE


def _is_of_other_job(path: str, attempt: Attempt, run: Run, state: State) -> bool:
    """Whether another job of the run writes this file, or the name of the file has the number of that job."""
    named = {*NUMBERS.findall(posixpath.basename(path))}
    if attempt.job_id in named:
        return False
    if NUMBERS.sub("#", path) == NUMBERS.sub("#", attempt.log_path or ""):
        return True  # that of a job which Slurm has not listed yet
    jobs = [*(state.jobs[key] for key in run.jobs if key in state.jobs), *state.accounted]
    if any(job.id != attempt.job_id and (job.stdout == path or job.id in named) for job in jobs):
        return True
    return any(one.run_id == run.name and one.job_id in named for one in state.attempts.values())


def is_read(attempt: Attempt, end: AttemptEnd, run: Run, state: State) -> bool:
    """Whether the end of its log was read, and the last checkpoint was listed."""
    since, log, saved = max(end.at, state.started_at), run.log, run.checkpoints
    if receipts.is_awaited(replace(attempt, end=end), state):
        return False
    if log is None or log.checked_at is None or log.checked_at < since + SETTLE:
        return False
    has_saves = run.spec.checkpoints is None or (saved is not None and saved.listed_at >= since)
    was_followed = attempt.log_path is not None and attempt.log_path == log.path_before
    return has_saves and (was_followed or owns_log(attempt, run, state))


def lines_of(log: Log | None, path: str | None, *, is_newest: bool) -> tuple[str, ...]:
    """The lines of the log of the newest attempt, or of the one before it, if that was this file."""
    if log is None:
        return ()
    marks = [index for index, line in enumerate(log.lines) if line.startswith(LOG_MARK)]
    if is_newest and log.path in (None, path):
        return log.lines[marks[-1] + 1 :] if marks else log.lines
    begins = marks[-2] + 1 if len(marks) > 1 else 0
    return log.lines[begins : marks[-1]] if marks and path == log.path_before else ()


def has_newer(attempt: Attempt, others: Iterable[Attempt]) -> bool:
    """Whether its run has started again since."""
    return any(one.run_id == attempt.run_id and one.start > attempt.start for one in others)
