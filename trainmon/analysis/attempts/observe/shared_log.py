"""The part of a log that one attempt has written, where several append to one file and nobody watched: by the times in
its lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from trainmon.analysis.attempts.logs import began_at, latest_of, lines_of
from trainmon.analysis.attempts.observe.run import with_log
from trainmon.analysis.attempts.steps import BEFORE, SECOND, before_next_start, with_steps_of
from trainmon.analysis.log_formats import report, written
from trainmon.lib import Instant
from trainmon.model import Attempt, Run, State


def with_own_lines(
    seen: Attempt, run: Run, state: State, known: Mapping[str, Attempt], *, is_newest: bool
) -> tuple[Attempt, tuple[str, ...]]:
    """An attempt that was not watched to its end, with what its run shows of it, and its own lines of the log that was
    last written while it ran, or that its run follows."""
    seen, lines = with_log(seen, run, state) if is_newest else (seen, ())
    return own_part(seen, lines, run, state, known) if lines else _part_of_followed(seen, run, state, known)


def own_part(
    attempt: Attempt, lines: Sequence[str], run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Attempt, tuple[str, ...]]:
    """The attempt with the steps in its own lines, and these; all as they were if the lines are not dated, or all its
    own."""
    log, began = run.log, began_at(attempt.started_at, run, state)
    if log is None or log.at is None or began is None or attempt.end is None:
        return attempt, tuple(lines)
    times = written(lines, log.at)
    if all(at is None for at in times) or not _goes_on(times):
        return attempt, tuple(lines)
    others = [one for one in known.values() if one.run_id == run.name and one.start < attempt.start]
    ends = (min(began, one.ended_at) + SECOND for one in others if one.ended_at is not None)
    own = _between(lines, times, max((began - BEFORE, *ends)), latest_of(attempt, run, state, known))
    if len(own) == len(lines) or report(lines, ()).progress.step is None:
        return attempt, own
    plain = replace(attempt, first_step=None, first_step_at=None, last_step=None, resumed_from=None, resumed_words=None)
    return with_steps_of(plain, own, (), is_whole=True), own


def before_next(attempt: Attempt, path: str | None, run: Run, state: State, *, is_newest: bool) -> tuple[str, ...]:
    """The lines that an attempt which has ended has written to this file, without those of the next one: by their
    times, or up to where its trainer shows that it has started again."""
    log, latest = run.log, latest_of(attempt, run, state)
    lines = lines_of(log, path, is_newest=is_newest)
    if log is None or log.at is None or log.at <= latest or log.path != path or (lines and not is_newest):
        return lines
    whole = lines_of(log, log.path, is_newest=True)
    if own := _between(whole, written(whole, log.at), 0.0, latest):
        return own
    following = run.memory.spans[len(before_next_start(run.memory.spans, attempt.ended_at or latest)) :]
    begins = len(log.lines) - len(whole)
    return log.lines[begins : max(begins, following[0].first_line - log.first)] if following else lines


def _part_of_followed(
    attempt: Attempt, run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Attempt, tuple[str, ...]]:
    """An earlier attempt, with its lines of the log that its run follows; without any if it wrote another file, or none
    of them is known to be its own."""
    log = run.log
    if log is None or log.path is None or (attempt.log_path or run.spec.log) != log.path:
        return attempt, ()
    lines = lines_of(log, log.path, is_newest=True)
    found, own = own_part(attempt, lines, run, state, known)
    is_part = 0 < len(own) < len(lines)
    return (replace(found, log_path=log.path, log_host=log.host), own) if is_part else (attempt, ())


def _goes_on(times: Sequence[Instant | None]) -> bool:
    """Whether the times tell starts apart: not if there is a single one."""
    dated = [at for at in times if at is not None]
    return any(after > before for before, after in pairwise(dated))


def _between(lines: Sequence[str], times: Sequence[Instant | None], began: Instant, until: Instant) -> tuple[str, ...]:
    """The lines of this time. One without a time belongs to the one above."""
    at, own = next((one for one in times if one is not None), None), []
    for line, found in zip(lines, times, strict=True):
        at = at if found is None else found
        if at is not None and began <= at < until:
            own.append(line)
    return tuple(own)
