"""The summary for a channel that works again: what other channels have delivered, and what still fires. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from trainmon.alerting.notify.base import Message
from trainmon.alerting.notify.message import TITLE_CELLS, name_of, printable, render
from trainmon.alerting.rules import ago
from trainmon.lib import Instant, counted, shorten
from trainmon.model import SEVERITIES, Alert, Notice, Notification, Severity

NAMED = 10
"""How many alerts the first lines name; the rest of the message describes each."""


def summary(
    channel: str, notifications: Sequence[Notification], alerts: Mapping[str, Alert] | None, now: Instant
) -> Message:
    """One message of what other channels have delivered. `alerts`: their present state; None while it is not known."""
    newest_of = {alert.key: alert for alert in sorted((alerts or {}).values(), key=lambda alert: alert.episode)}
    present = None if alerts is None else lambda alert: alerts.get(alert.id) or newest_of.get(alert.key)
    notices = tuple(_update(notification, present, now) for notification in notifications)
    message = render(notices, now)
    by_others = [notification for notification in notifications if notification.delivered_by]
    others = sorted({printable(name) for notification in by_others for name in notification.delivered_by})
    newest = {alert.id: alert for notice in sorted(notices, key=lambda one: one.at) for alert in notice.alerts}
    firing = [alert for alert in newest.values() if alert.is_open and not alert.event]
    over = [alert for alert in newest.values() if not alert.is_open]
    down = ago(max(0.0, now - min((one.notice.at for one in by_others), default=now)))
    went = f"while {printable(channel)} was down, {counted(len(by_others), 'message')} went by {' and '.join(others)}"
    lead = "\n".join([f"{went}; the first {down} ago", *_listed("still firing", firing), *_listed("over", over)])
    # What still fires and nobody has acknowledged keeps its severity.
    severities: list[Severity] = [alert.severity for alert in firing if alert.acknowledged_by is None]
    title = f"{counted(len(firing), 'alert')} still firing: {went}" if firing else f"All resolved: {went}"
    return replace(
        message,
        title=shorten(title, TITLE_CELLS),
        body=f"{lead}\n\n{message.body}",
        shorter=tuple(f"{lead}\n\n{shorter}" for shorter in message.shorter),
        severity=min(severities, key=SEVERITIES.index, default="info"),
    )


def _update(notification: Notification, present: Callable[[Alert], Alert | None] | None, now: Instant) -> Notice:
    """Its notice with the present state of its alerts, or of a later episode of their subjects."""
    notice, channels = notification.notice, notification.delivered_by
    known: list[Alert] = []
    for alert in notice.alerts:
        if present is not None and (newest := present(alert)) is not None:
            known.append(newest)
        elif present is not None and alert.is_open:  # it ended more than a day ago, so its end is not kept
            known.append(replace(alert, phase="resolved", ended="no longer known", resolved_at=now))
        else:
            known.append(alert)
    reason = f"{notice.reason}; delivered by {' and '.join(channels)}" if channels else notice.reason
    return replace(notice, reason=reason, alerts=tuple(known))


def _listed(what: str, alerts: Sequence[Alert]) -> Iterable[str]:
    names = [name_of(alert) for alert in alerts[:NAMED]]
    more = [f"and {len(alerts) - NAMED:,} more"] if len(alerts) > NAMED else []
    return [f"{what}: {'; '.join([*names, *more])}"] if alerts else []
