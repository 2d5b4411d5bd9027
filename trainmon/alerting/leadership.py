"""Alert leadership: whether this program notifies people, and what it takes over from the leader before. Pure."""

from __future__ import annotations

import re

from msgspec.structs import replace

from trainmon.alerting.pending_changes import PendingChanges
from trainmon.alerting.pipeline import episode
from trainmon.lib import Instant, Seconds, dated
from trainmon.model import Alert, Delivered, Leadership, State, StoredAlerts

OPENING = frozenset({"fire", "worse", "repeat", "escalate", "flapping", "digest"})
"""Kinds of notifications that say that an alert fires."""

LEDGER_WAIT: Seconds = 10.0
"""A new leader waits at most this long for the ledger, which knows what was notified before."""


class LeadershipTracker:
    """The leadership of one AlertManager."""

    def __init__(self, *, runs_once: bool = False) -> None:
        """`runs_once`: each evaluation is a program of its own (cron), so the time between two of them is no outage."""
        self._runs_once = runs_once
        self.is_announced = False
        """Whether the start of this program was notified."""
        self.outage: Seconds | None = None
        """How long nothing had been evaluated when this program became the leader."""
        self._ours_since: Seconds | None = None
        self._is_restored = False
        self._was_daemon = False

    def may_notify(self, leadership: Leadership, steady: Seconds) -> bool:
        """Whether this program notifies people now."""
        since = self._ours_since
        return leadership.holder == "us" and since is not None and (self._is_restored or steady - since >= LEDGER_WAIT)

    def changed(self, state: State, leadership: Leadership, steady: Seconds, changes: PendingChanges) -> State:
        """Another program is the leader from now on, or this one is."""
        was = state.leadership.holder
        state = replace(state, leadership=leadership)
        if leadership.holder == was:
            return state
        if leadership.holder != "us":
            self._ours_since, self._is_restored = None, False
            return state
        self._ours_since, self._was_daemon = steady, was == "daemon"
        changes.write_alerts()
        if self._was_daemon:
            state = replace(state, alerts={name: _as_notified(alert) for name, alert in state.alerts.items()})
        return state

    def restore(self, state: State, stored: StoredAlerts, now: Instant, changes: PendingChanges) -> State:
        """Take over the alerts of the ledger. The daemon of another machine knows more than our own ledger."""
        self._is_restored = True
        self.outage = None if stored.at is None else max(0.0, now - stored.at)
        changes.restore(stored.memory, stored.requests_until)
        before = tuple(_with_delivering_channels(alert) for alert in stored.alerts)
        if self._was_daemon:
            known = {alert.key for alert in state.alerts.values() if alert.is_open}
            before = tuple(alert for alert in before if alert.key not in known)
        outage, gap = self.outage or 0.0, episode.OUTAGE_TOLERANCE if self._runs_once else episode.RESTART
        alerts = episode.merge_stored(state.alerts, before, outage if outage > gap else None, now)
        silences = {silence.id: silence for silence in stored.silences if silence.ended_at is None}
        return replace(state, alerts=alerts, silences={**state.silences, **silences})


def _as_notified(alert: Alert) -> Alert:
    """An alert of a daemon that is gone: its notifications are not sent again."""
    sent = [delivery.at for delivery in alert.delivery if delivery.state == "sent"]
    is_sent = sent and alert.notified_as is None
    return (
        replace(alert, notified_as=alert.severity, notified_at=max(sent), first_notified_at=min(sent))
        if is_sent
        else alert
    )


IN_SECONDS = re.compile(r"\ds ago\b")

REWRITTEN_WITHIN: Seconds = 90.0
"""The program that leads writes the text of an alert once a minute while only its ages change."""


def as_reported(alert: Alert, now: Instant) -> Alert:
    """An alert that another program evaluates. Ages in its summary that may no longer be true become times."""
    is_late = now - alert.found_at > REWRITTEN_WITHIN or IN_SECONDS.search(alert.summary) is not None
    return replace(alert, summary=dated(alert.summary, alert.found_at)) if is_late else alert


def delivered(state: State, event: Delivered) -> State:
    """The State after a delivery."""
    new = event.delivery
    changed = {
        alert.id: _with_delivering_channels(
            replace(alert, delivery=(*(one for one in alert.delivery if one.channel != new.channel), new))
        )
        for alert in (state.alerts[name] for name in event.alerts if name in state.alerts)
    }
    return replace(state, alerts={**state.alerts, **changed}) if changed else state


def _with_delivering_channels(alert: Alert) -> Alert:
    """The alert with the fallbacks that delivered its notifications: they are also notified of its end."""
    if not alert.is_open:
        return alert
    delivered_on = [one.channel for one in alert.delivery if one.state in ("sent", "merged") and one.kind in OPENING]
    new = tuple(name for name in delivered_on if name not in alert.notified_on)
    return replace(alert, notified_on=(*alert.notified_on, *new)) if new else alert
