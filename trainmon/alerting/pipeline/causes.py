"""The cause of a failure in its messages: in the first one if it is known by then, else in one follow-up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import NOTIFY_END_WITHIN
from trainmon.alerting.pipeline.routing import DueAlert, Routing, quiet_because
from trainmon.analysis.explanation import brief
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Attempt, RetryPolicy, State

FAILURES = frozenset({"run-dead", "ended-early"})
"""The rules about the end of an attempt that no person ended."""

NEAR: Seconds = 120.0
"""An alert begins with the last step or with the end of the job, by the clock of another machine. So the end of its
attempt is at most this long before it."""

LOG_WITHIN: Seconds = 60.0
"""The end of the log and the last checkpoint are awaited this long: they decide about the cause and the loss."""


def with_causes(
    due_alerts: Iterable[DueAlert], alerts: Mapping[str, Alert], state: State, routing: Routing, now: Instant
) -> list[DueAlert]:
    """The due alerts. The first message of a failure names its cause if that is known; else one follow-up does, when
    nothing else of the alert is due."""
    found = list(due_alerts)
    places = {due.alert.id: place for place, due in enumerate(found)}
    explained = {alert.cause_of for alert in alerts.values()}
    for alert in alerts.values():
        if alert.rule not in FAILURES or alert.cause_of is not None or not alert.is_firing | _is_recent(alert, now):
            continue
        place, is_known = places.get(alert.id), alert.first_notified_at is not None
        attempt = _ended_attempt(alert, state, now) if (place is None) is is_known else None
        if attempt is None or attempt.attempt_id in explained or (is_known and quiet_because(alert) is not None):
            continue
        run = state.runs.get(attempt.run_id)
        policy = RetryPolicy() if run is None else run.spec.retry
        if not (lines := brief(attempt, state.attempts.values(), state.actions.values(), policy)):
            continue
        if place is not None:
            due = found[place]
            found[place] = due._replace(alert=replace(due.alert, cause=lines, cause_of=attempt.attempt_id))
        elif channels := _channels(alert, routing):
            named = replace(alert, cause=lines, cause_of=attempt.attempt_id)
            found.append(DueAlert(named, "cause", "its cause is known", channels, now))
        else:
            continue
        explained.add(attempt.attempt_id)
    return found


def _is_recent(alert: Alert, now: Instant) -> bool:
    return alert.fired_at is not None and now - (alert.resolved_at or now) < NOTIFY_END_WITHIN


def _channels(alert: Alert, routing: Routing) -> tuple[str, ...]:
    """The channels that the alert was notified on, also if its end was notified since. A fallback delivers what they
    cannot."""
    names = {*alert.notified_on, *(one.channel for one in alert.delivery)}
    return tuple(route.channel for route in routing.routes if route.channel in names and not route.fallback)


def _ended_attempt(alert: Alert, state: State, now: Instant) -> Attempt | None:
    """The attempt whose end the alert reports, once everything about that end is known."""
    until = (now if alert.fired_at is None else alert.fired_at) + NEAR
    attempts = [one for one in state.attempts.values() if one.run_id == alert.run]
    ended = [one for one in attempts if alert.since - NEAR <= (one.ended_at or 0.0) <= until]
    attempt = max(ended, key=lambda one: one.ended_at or 0.0, default=None)
    if attempt is None or attempt.end is None or any(one.stage == "ending" for one in attempts):
        return None
    return attempt if not attempt.end.awaits_log or now - attempt.end.noticed_at >= LOG_WITHIN else None
