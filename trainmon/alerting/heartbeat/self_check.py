"""The self-check of the monitor: the dead-man's switch is pinged only while it finds no fault. Pure."""

from __future__ import annotations

from collections.abc import Callable

from trainmon.alerting.rules import ago
from trainmon.lib import Instant, Seconds
from trainmon.model import State

EVALUATED_WITHIN: Seconds = 60.0
"""The rules are evaluated once a second."""

SEEN_WITHIN: Seconds = 120.0
"""After a start or a lost network, the first source answers within this time."""

SENT_WITHIN: Seconds = 900.0
"""The longest pause between two tries of a channel is 5 minutes."""


def unwell(state: State, now: Instant) -> str | None:
    """Why the dead-man's switch must not be pinged, in a sentence; None if the monitor is healthy."""
    return next((why for check in CHECKS if (why := check(state, now)) is not None), None)


def _does_not_evaluate(state: State, now: Instant) -> str | None:
    looked = state.started_at if state.looked_at is None else state.looked_at
    if now - looked <= EVALUATED_WITHIN:
        return None
    return f"the rules were not gone through for {ago(now - looked)}"


def _is_blind(state: State, now: Instant) -> str | None:
    wanted = [source for source in state.sources.values() if source.health != "off"]
    if any(source.health == "ok" for source in wanted):
        return None
    last_seen = max((source.seen_at for source in wanted if source.seen_at is not None), default=state.started_at)
    began = max(last_seen, state.started_at, state.woke_at or 0.0)
    if not wanted or now - began <= SEEN_WITHIN:
        return None
    return f"none of {len(wanted)} sources has answered for {ago(now - began)}"


def _does_not_notify(state: State, now: Instant) -> str | None:
    if state.duty.holder != "us":
        return None if now - state.started_at <= SEEN_WITHIN else "this program does not tell people: another one does"
    if state.channels and all(channel.state == "broken" for channel in state.channels.values()):
        return "every channel refuses what it is given"
    waiting = [channel for channel in state.channels.values() if channel.oldest_at is not None]
    for channel in waiting:
        if channel.oldest_at is not None and now - channel.oldest_at > SENT_WITHIN:
            return f"a message for {channel.name} has waited for {ago(now - channel.oldest_at)}"
    return None


def _cannot_record(state: State, now: Instant) -> str | None:
    return None if state.ledger is None else f"the ledger cannot be written: {state.ledger}"


CHECKS: tuple[Callable[[State, Instant], str | None], ...] = (
    _does_not_evaluate,
    _is_blind,
    _does_not_notify,
    _cannot_record,
)
