"""The logs of attempts that ended before the newest one of their run, unseen: which are still to be read, and what was
read of one. Pure."""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from trainmon.analysis.attempts.ending import closed
from trainmon.analysis.attempts.files import files_to_read
from trainmon.analysis.attempts.fold import merged
from trainmon.analysis.attempts.observe.observed import with_own_lines
from trainmon.analysis.attempts.steps import NUMBERS
from trainmon.analysis.runs import last_attempts, named_files
from trainmon.lib import Seconds
from trainmon.model import Attempt, AttemptEnd, AttemptFile, FileSpec, LogSpec, Run, State

PREFIX = "log of "
"""Of the name of such a log, as the probe sends it back."""

AT_ONCE = 20
"""Logs that are requested at a time on one cluster. The probe reads the last 64 KiB of each."""

AT_MOST = 100
"""Logs of one cluster. A sweep that ended unseen may have thousands."""

GIVE_UP: Seconds = 600.0
"""How long a log that cannot be read is tried."""


def is_wanted(attempt: Attempt, state: State) -> bool:
    """Whether the log of an earlier attempt of a run is still to be read."""
    end = attempt.end
    if end is None or not end.awaits_log or end.log_tail is not None or "log_path" in attempt.files:
        return False
    if attempt.job_id is None and not (names_log(attempt, end) and _is_last_writer(attempt, state)):
        return False
    return state.at - max(end.noticed_at, state.started_at) < GIVE_UP


def names_log(attempt: Attempt, end: AttemptEnd) -> bool:
    """Whether the log of an attempt without a job shows its end, and nothing else does."""
    return end.source == "lost" and attempt.receipt is None and (attempt.log_path or "").startswith("/")


def _is_last_writer(attempt: Attempt, state: State) -> bool:
    """Whether no later attempt of its run writes the same log."""
    file = (attempt.run_id, attempt.log_path)
    others = (one for one in state.attempts.values() if (one.run_id, one.log_path) == file)
    return max(others, key=lambda one: one.start, default=attempt).attempt_id == attempt.attempt_id


def logs_to_read(state: State) -> Mapping[str, tuple[LogSpec, ...]]:
    """By cluster: the logs of attempts that ended, the newest first. The log that a run follows is not one of them."""
    last = last_attempts(state.attempts.values())
    earlier = [one for one in state.attempts.values() if one.run_id in state.runs and one is not last[one.run_id]]
    found: dict[str, list[Attempt]] = {}
    for one in earlier:
        if "log_path" in one.files or is_wanted(one, state):
            found.setdefault(one.cluster, []).append(one)
    specs = ((cluster, tuple(_specs(attempts, state))[:AT_ONCE]) for cluster, attempts in found.items())
    return {cluster: wanted for cluster, wanted in specs if wanted}


def read_once(state: State) -> Mapping[str, tuple[FileSpec | LogSpec, ...]]:
    """By cluster: the files and logs of attempts that are still to be read, and status files that processes name."""
    parts: tuple[Mapping[str, tuple[FileSpec | LogSpec, ...]], ...]
    parts = files_to_read(state), logs_to_read(state), named_files(state)
    clusters = dict.fromkeys(cluster for part in parts for cluster in part)
    return {cluster: tuple(one for part in parts for one in part.get(cluster, ())) for cluster in clusters}


def _specs(attempts: Iterable[Attempt], state: State) -> Iterator[LogSpec]:
    for one in sorted(attempts, key=lambda one: one.ended_at or 0.0, reverse=True)[:AT_MOST]:
        log, path = state.runs[one.run_id].log, _path(one, state)
        if is_wanted(one, state) and path is not None and (log is None or path != log.path):
            yield LogSpec(id=f"{PREFIX}{one.attempt_id}", pattern=glob.escape(path))


def _path(attempt: Attempt, state: State) -> str | None:
    """Where its log is. Accounting does not say that: of two jobs of a run, the names of the files differ only by their
    numbers."""
    if attempt.log_path is not None or attempt.job_id is None:
        return attempt.log_path if (attempt.log_path or "").startswith("/") else None
    for one in reversed([*state.attempts.values()]):
        folder, name = posixpath.split(one.log_path or "")
        if one.run_id == attempt.run_id and one.job_id is not None and one.job_id in NUMBERS.findall(name):
            number = re.compile(rf"(?<!\d){re.escape(one.job_id)}(?!\d)")
            return posixpath.join(folder, number.sub(attempt.job_id, name))
    return None


def attempt_of_log(name: str, attempts: Mapping[str, Attempt]) -> Attempt | None:
    """The attempt that ended whose log has this name, if it is one."""
    return attempts.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def with_unseen_log(attempt: Attempt, run: Run, state: State) -> Attempt:
    """The attempt after its log was read, as if that were the log of this run: its steps, its last lines and its cause.
    The log of a job that was written after its end has the end of another attempt."""
    log = run.log
    if attempt.end is None or not is_wanted(attempt, state) or log is None or log.path is None or log.error is not None:
        return attempt
    end = replace(attempt.end, awaits_log=False)
    if attempt.job_id is None:  # it wrote on after it was seen last
        end = replace(end, at=max(end.at, log.at or 0.0))
    seen = replace(attempt, log_path=log.path, end=end)
    seen, lines = with_own_lines(seen, run, state, state.attempts, is_newest=True)
    file = AttemptFile(path=log.path, read_at=state.at, size=log.size, modified_at=log.at)
    if not lines:
        file = replace(file, error="it was not written while this attempt ran")
        return merged(attempt, replace(attempt, files={**attempt.files, "log_path": file}))
    if seen.started_at is None and log.first_at is not None:
        others = (one for one in state.attempts.values() if (one.run_id, one is attempt) == (seen.run_id, False))
        before = (one.ended_at or one.seen_at for one in others if one.seen_at < seen.seen_at)
        began = min(max(log.first_at, *before, 0.0), end.at)
        seen = replace(seen, started_at=began, start_is_estimated=True)
    return closed(replace(seen, files={**attempt.files, "log_path": file}), lines, before=attempt, state=state)
