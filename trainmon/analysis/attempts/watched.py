"""How long an attempt was watched while it made steps, and how much of that it hung or saved. Pure."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds
from trainmon.model import SILENT, Attempt, Run, State
from trainmon.model.attempts import HUNG

PAUSE: Seconds = 600.0
"""After a pause of at most this, the log shows what happened meanwhile. In a longer one, nobody watched."""


def watched(one: Attempt, before: Attempt | None, run: Run, state: State) -> Attempt:
    """The attempt with the time that has passed since it was seen before. While the verdict on its run is not known,
    nobody watches it. Of several jobs of a run, the verdict is about the first one."""
    if before is None or not before.is_open or one.last_step is None:
        return one
    is_first = one.job_id is None or run.job == f"{one.cluster}/{one.job_id}"
    if not is_first and (one.told_end is None or before.watched_until is None):
        return one
    began = before.seen_at if one.first_step_at is None else one.first_step_at
    until = began if one.watched_until is None else one.watched_until
    facts = _hung(one, began, until, run)
    if run.verdict != "unknown" and one.seen_at > until:
        facts |= {"watched_until": one.seen_at, "watched_s": one.watched_s + _known(until, one.seen_at, until)}
    facts |= _saving(one, began, until, run, state, is_hung=facts.get("hung_since", one.hung_since) is not None)
    return replace(one, **facts) if facts else one


def _known(since: Instant, at: Instant, until: Instant) -> Seconds:
    """The time between two instants; if nobody watched before the second one, only that until somebody did."""
    return max(0.0, (at if at - until <= PAUSE else until) - since)


def _hung(one: Attempt, began: Instant, until: Instant, run: Run) -> dict[str, Any]:
    """A silence begins with the last step, or the end of a save or an evaluation after it, and ends with the next one.
    What the cause of the end proves counts, too. A step after the end is that of the next attempt."""
    at, since, end = max(began, run.progress.at or began), one.hung_since, one.told_end
    is_silent = run.verdict in SILENT if end is None else end.cause is not None and end.cause.cause in HUNG
    if end is not None and at >= end.at:
        return {}
    if since is None:
        busy_until = run.progress.doing_at if run.progress.doing == "train" else None
        return {"hung_since": max(at, busy_until or at)} if is_silent else {}
    is_over = at > since and not is_silent
    return {"hung_s": one.hung_s + _known(since, at, until), "hung_since": None} if is_over else {}


def _saving(one: Attempt, began: Instant, until: Instant, run: Run, state: State, *, is_hung: bool) -> dict[str, Any]:
    """The time of a save that hangs is hung. While the verdict is not known, it may go on."""
    since, told = one.saving_since, one.told_end
    is_saving = run.verdict == "saving" and told is None and not is_hung
    if since is None:
        at = max(began, run.progress.busy_since or state.at)
        return {"saving_since": at, "saves": one.saves + 1} if is_saving else {}
    if is_saving or (run.verdict == "unknown" and told is None):
        return {}
    blocked = 0.0 if is_hung else _known(since, state.at if told is None else told.at, until)
    return {"saving_s": one.saving_s + blocked, "saving_since": None, "saves": one.saves - is_hung}
