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
    if one.job_id is not None and run.job != f"{one.cluster}/{one.job_id}":
        return one
    began = before.seen_at if one.first_step_at is None else one.first_step_at
    facts = {**_watched(one, began, run), **_hung(one, began, run), **_saving(one, began, run, state)}
    return replace(one, **facts) if facts else one


def _watched(one: Attempt, began: Instant, run: Run) -> dict[str, Any]:
    passed = one.seen_at - (began if one.watched_until is None else one.watched_until)
    if run.verdict == "unknown" or passed <= 0.0:
        return {}
    return {"watched_until": one.seen_at, "watched_s": one.watched_s + (passed if passed <= PAUSE else 0.0)}


def _hung(one: Attempt, began: Instant, run: Run) -> dict[str, Any]:
    """A silence begins with the last step and ends with the next one. What the cause of the end proves counts, too."""
    at, since, end = max(began, run.progress.at or began), one.hung_since, one.end
    if since is None:
        is_hung = end is not None and end.cause is not None and end.cause.cause in HUNG and at < end.at
        return {"hung_since": at} if run.verdict in SILENT or is_hung else {}
    is_over = at > since and run.verdict not in SILENT
    return {"hung_s": one.hung_s + at - since, "hung_since": None} if is_over else {}


def _saving(one: Attempt, began: Instant, run: Run, state: State) -> dict[str, Any]:
    since, told = one.saving_since, one.told_end
    if since is None and run.verdict == "saving" and told is None:
        return {"saving_since": max(began, run.progress.busy_since or state.at), "saves": one.saves + 1}
    if since is None or (run.verdict == "saving" and told is None):
        return {}
    until = state.at if told is None else told.at
    return {"saving_s": one.saving_s + max(0.0, until - since), "saving_since": None}
