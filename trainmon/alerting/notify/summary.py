"""What a channel is told when it works again: what others have delivered, and what of it still fires. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from trainmon.alerting.notify.base import Message
from trainmon.alerting.notify.message import TITLE_CELLS, name_of, printable, render
from trainmon.alerting.rules import ago
from trainmon.lib import Instant, counted, shorten
from trainmon.model import SEVERITIES, Alert, Notice, Notification, Severity

NAMED = 10
"""Alerts that are named in the first lines; below, there is more of each."""


def summary(channel: str, letters: Sequence[Notification], alerts: Mapping[str, Alert] | None, now: Instant) -> Message:
    """One message of letters that others have delivered. `alerts` as they are now; None where that is not known."""
    notices = tuple(_as_it_is_now(letter, alerts, now) for letter in letters)
    told = render(notices, now)
    by_others = [letter for letter in letters if letter.delivered_by]
    others = sorted({printable(name) for letter in by_others for name in letter.delivered_by})
    newest = {alert.id: alert for notice in sorted(notices, key=lambda one: one.at) for alert in notice.alerts}
    firing = [alert for alert in newest.values() if alert.is_open and not alert.event]
    over = [alert for alert in newest.values() if not alert.is_open]
    down = ago(max(0.0, now - min((letter.notice.at for letter in by_others), default=now)))
    went = f"while {printable(channel)} was down, {counted(len(by_others), 'message')} went by {' and '.join(others)}"
    lead = "\n".join([f"{went}; the first {down} ago", *_listed("still firing", firing), *_listed("over", over)])
    return replace(
        told,
        title=shorten(
            f"{counted(len(firing), 'alert')} still firing: {went}" if firing else f"All over: {went}", TITLE_CELLS
        ),
        body=f"{lead}\n\n{told.body}",
        shorter=tuple(f"{lead}\n\n{shorter}" for shorter in told.shorter),
        severity=_severity(firing),
    )


def _as_it_is_now(letter: Notification, alerts: Mapping[str, Alert] | None, now: Instant) -> Notice:
    notice = letter.notice
    reason = (
        f"{notice.reason}; delivered by {' and '.join(letter.delivered_by)}" if letter.delivered_by else notice.reason
    )
    if alerts is None:
        return replace(notice, reason=reason)
    known = tuple(alerts.get(alert.id) or _unknown(alert, now) for alert in notice.alerts)
    return replace(notice, reason=reason, alerts=known)


def _unknown(alert: Alert, now: Instant) -> Alert:
    """One that ended long ago: only the last day's are kept."""
    return alert if not alert.is_open else replace(alert, phase="resolved", ended="no longer known", resolved_at=now)


def _listed(what: str, alerts: Sequence[Alert]) -> Iterable[str]:
    names = [name_of(alert) for alert in alerts[:NAMED]]
    more = [f"and {len(alerts) - NAMED:,} more"] if len(alerts) > NAMED else []
    return [f"{what}: {'; '.join([*names, *more])}"] if alerts else []


def _severity(firing: Iterable[Alert]) -> Severity:
    """What still fires, and nobody has acknowledged, is as bad as it was; the rest is for information."""
    open_ones: list[Severity] = [alert.severity for alert in firing if alert.acknowledged_by is None]
    return min(open_ones, key=SEVERITIES.index, default="info")
