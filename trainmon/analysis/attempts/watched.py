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
    facts = {**_watched(one, began, run), **_hung(one, began, run)}
    facts |= _saving(one, began, run, state, is_hung=facts.get("hung_since", one.hung_since) is not None)
    return replace(one, **facts) if facts else one


def _watched(one: Attempt, began: Instant, run: Run) -> dict[str, Any]:
    passed = one.seen_at - (began if one.watched_until is None else one.watched_until)
    if run.verdict == "unknown" or passed <= 0.0:
        return {}
    return {"watched_until": one.seen_at, "watched_s": one.watched_s + (passed if passed <= PAUSE else 0.0)}


def _hung(one: Attempt, began: Instant, run: Run) -> dict[str, Any]:
    """A silence begins with the last step and ends with the next one. What the cause of the end proves counts, too. A
    step after the end is that of the next attempt."""
    at, since, end = max(began, run.progress.at or began), one.hung_since, one.told_end
    is_silent = run.verdict in SILENT if end is None else end.cause is not None and end.cause.cause in HUNG
    if end is not None and at >= end.at:
        return {}
    if since is None:
        return {"hung_since": at} if is_silent else {}
    return {"hung_s": one.hung_s + at - since, "hung_since": None} if at > since and not is_silent else {}


def _saving(one: Attempt, began: Instant, run: Run, state: State, *, is_hung: bool) -> dict[str, Any]:
    """The time of a save that hangs is hung."""
    since, told = one.saving_since, one.told_end
    is_saving = run.verdict == "saving" and told is None and not is_hung
    if since is None:
        at = max(began, run.progress.busy_since or state.at)
        return {"saving_since": at, "saves": one.saves + 1} if is_saving else {}
    if is_saving:
        return {}
    until = since if is_hung else state.at if told is None else told.at
    saving_s = one.saving_s + max(0.0, until - since)
    return {"saving_s": saving_s, "saving_since": None, "saves": one.saves - is_hung}
