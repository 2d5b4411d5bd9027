"""The cause of a failure in its messages: in the first one if it is known by then, else in one follow-up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import NOTIFY_END_WITHIN
from trainmon.alerting.pipeline.routing import DueAlert, Routing, quiet_because
from trainmon.analysis.explanation import brief
from trainmon.analysis.retries import is_on_purpose
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Attempt, RetryPolicy, State

ENDS = frozenset({"run-dead", "ended-early", "restarted"})
"""The rules about the end of an attempt that no person ended, and about the start of the next one, which may be the
only message about an end."""

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
    found, explained = list(due_alerts), {alert.cause_of for alert in alerts.values()}
    known_due = {due.alert.id: due for due in found}
    for alert in (one for one in alerts.values() if one.rule in ENDS and one.cause_of is None):
        due, is_follow_up = known_due.get(alert.id), alert.first_notified_at is not None
        if (due is None) is not is_follow_up or (is_follow_up and quiet_because(alert) is not None):
            continue
        attempt = _ended_attempt(alert, state, now)
        channels = _channels(alert, routing) if due is None else due.channels
        if attempt is None or attempt.attempt_id in explained or not channels:
            continue
        policy = state.runs[attempt.run_id].spec.retry if attempt.run_id in state.runs else RetryPolicy()
        if lines := brief(attempt, state.attempts.values(), state.actions.values(), policy):
            named = replace(alert, cause=lines, cause_of=attempt.attempt_id)
            explained.add(attempt.attempt_id)
            if due is None:
                found.append(DueAlert(named, "cause", "its cause is known", channels, now))
            else:
                found[found.index(due)] = due._replace(alert=named)
    return found


def _channels(alert: Alert, routing: Routing) -> tuple[str, ...]:
    """The channels that the alert was notified on, also if its end was notified since. A fallback delivers what they
    cannot."""
    names = {*alert.notified_on, *(one.channel for one in alert.delivery)}
    return tuple(route.channel for route in routing.routes if route.channel in names and not route.fallback)


def _ended_attempt(alert: Alert, state: State, now: Instant) -> Attempt | None:
    """The attempt whose end the alert reports, once everything about that end is known."""
    is_recent = alert.fired_at is not None and now - (alert.resolved_at or now) < NOTIFY_END_WITHIN
    if not (alert.is_firing or is_recent):
        return None
    until = (now if alert.fired_at is None else alert.fired_at) + NEAR
    attempts = [one for one in state.attempts.values() if one.run_id == alert.run]
    ended = (
        one
        for one in attempts
        if alert.since - NEAR <= (one.ended_at or 0.0) <= until
        and (not alert.event or one.start < alert.since)  # not the one that was started
    )
    attempt = max(ended, key=lambda one: one.ended_at or 0.0, default=None)
    if attempt is None or attempt.end is None or any(one.stage == "ending" for one in attempts):
        return None
    is_planned = alert.event and attempt.cause is not None and is_on_purpose(attempt.cause.cause)
    is_read = not attempt.end.awaits_log or now - attempt.end.noticed_at >= LOG_WITHIN
    return attempt if is_read and not is_planned else None
