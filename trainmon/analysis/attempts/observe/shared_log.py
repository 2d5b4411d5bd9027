"""The part of a log that one attempt has written, where several append to one file and nobody watched: by the times in
its lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from trainmon.analysis.attempts.logs import began_at, lines_of
from trainmon.analysis.attempts.steps import AFTER, BEFORE, with_steps_of
from trainmon.analysis.log_formats import report, written
from trainmon.lib import Instant
from trainmon.model import Attempt, Run, State


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
    own = _between(lines, times, *_bounds(attempt, began, attempt.end.at, run, state, known))
    if len(own) == len(lines) or report(lines, ()).progress.step is None:
        return attempt, own
    plain = replace(attempt, first_step=None, first_step_at=None, last_step=None, resumed_from=None, resumed_words=None)
    return with_steps_of(plain, own, (), is_whole=True), own


def part_of_followed(
    attempt: Attempt, run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Attempt, tuple[str, ...]] | None:
    """An earlier attempt, with its lines of the log that its run follows; None if it wrote another file, or none of
    them is known to be its own."""
    log = run.log
    if log is None or log.path is None or (attempt.log_path or run.spec.log) != log.path:
        return None
    lines = lines_of(log, log.path, is_newest=True)
    found, own = own_part(attempt, lines, run, state, known)
    return (replace(found, log_path=log.path, log_host=log.host), own) if 0 < len(own) < len(lines) else None


def _bounds(
    attempt: Attempt, began: Instant, ended: Instant, run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Instant, Instant]:
    """From when, and until when, its lines are dated: clocks differ a little, but another attempt has its own lines."""
    others = [one for one in known.values() if one.run_id == run.name and one.attempt_id != attempt.attempt_id]
    starts = [(at, one) for one in others if (at := began_at(one.started_at, run, state)) is not None]
    before = (_change(one.ended_at, began) for at, one in starts if at < began and one.ended_at is not None)
    after = (_change(ended, at) for at, _ in starts if at > began)
    return max((began - BEFORE, *before)), min((ended + AFTER, *after))


def _change(ended: Instant, began: Instant) -> Instant:
    """From when lines are of the next attempt. Slurm's times are whole seconds."""
    return min(began, max(ended + 1.0, began - BEFORE))


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
