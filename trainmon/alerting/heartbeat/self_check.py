"""The self-check of the monitor: the dead-man's switch is pinged only while it finds no fault. Pure."""

from __future__ import annotations

from trainmon.alerting.rules import ago
from trainmon.lib import Instant, Seconds
from trainmon.model import State

EVALUATED_WITHIN: Seconds = 60.0
"""The rules are evaluated once a second."""

SILENT_AFTER: Seconds = 120.0
"""After a start or a lost network, the first source answers within this time."""

SENT_WITHIN: Seconds = 900.0
"""The longest pause between two tries of a channel is 5 minutes."""


def unwell(state: State, now: Instant) -> str | None:
    """Why the dead-man's switch must not be pinged, in a sentence; None if the monitor is healthy."""
    evaluated_at = state.started_at if state.evaluated_at is None else state.evaluated_at
    if now - evaluated_at > EVALUATED_WITHIN:
        return f"the rules have not been evaluated for {ago(now - evaluated_at)}"
    return (
        _silent(state, now)
        or _not_notifying(state, now)
        or (None if state.ledger is None else f"the ledger cannot be written: {state.ledger}")
    )


def _silent(state: State, now: Instant) -> str | None:
    wanted = [source for source in state.sources.values() if source.health != "off"]
    answered = (source.answered_at for source in wanted if source.answered_at is not None)
    since = max((state.started_at, state.clock_jumped_at or 0.0, *answered))
    if not wanted or any(source.health == "ok" for source in wanted) or now - since <= SILENT_AFTER:
        return None
    return f"none of {len(wanted)} sources has answered for {ago(now - since)}"


def _not_notifying(state: State, now: Instant) -> str | None:
    channels = state.channels.values()
    if state.leadership.holder != "us":
        is_new = now - state.started_at <= SILENT_AFTER
        return None if is_new else "this program does not notify people: another one does"
    if channels and all(channel.state == "broken" for channel in channels):
        return "every channel refuses its notifications"
    for channel in channels:
        if channel.oldest_at is not None and now - channel.oldest_at > SENT_WITHIN:
            return f"a notification for {channel.name} has waited for {ago(now - channel.oldest_at)}"
    return None
