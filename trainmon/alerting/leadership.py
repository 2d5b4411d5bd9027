"""Whether we tell people, and what is taken over from whoever did before. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.alerting.pending_changes import PendingChanges
from trainmon.alerting.pipeline import flapping as episodes
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Delivered, Leadership, Recalled, State

OPENING = frozenset({"fire", "worse", "repeat", "escalate", "flapping", "digest"})
"""Kinds of notices that say that an alert fires."""

PATIENCE: Seconds = 10.0
"""Nothing is told before the ledger has said what was told already; one that hangs is not waited for longer."""


class LeadershipTracker:
    """Belongs to an Alerting."""

    def __init__(self, *, is_apart: bool = False) -> None:
        """`is_apart`: each look is a program of its own, and what lies between two of them is no outage."""
        self._is_apart = is_apart
        self.has_begun = False
        """Whether it was told that we watch."""
        self.unseen: Seconds | None = None
        """How long nobody had looked when we began."""
        self._ours_since: Seconds | None = None
        self._recalled = False
        self._was_daemon = False

    def may_tell(self, duty: Leadership, steady: Seconds) -> bool:
        """Whether we tell people now."""
        if duty.holder != "us" or self._ours_since is None:
            return False
        return self._recalled or steady - self._ours_since >= PATIENCE

    def changed(self, state: State, duty: Leadership, steady: Seconds, book: PendingChanges) -> State:
        """Somebody else tells people from now on, or we do."""
        was = state.duty.holder
        state = replace(state, duty=duty)
        if duty.holder == was:
            return state
        if duty.holder != "us":
            self._ours_since, self._recalled = None, False
            return state
        self._ours_since = steady
        self._was_daemon = was == "daemon"
        book.write_all()
        if self._was_daemon:
            state = replace(state, alerts={name: _as_told(alert) for name, alert in state.alerts.items()})
        return state

    def recalled(self, state: State, recalled: Recalled, now: Instant, book: PendingChanges) -> State:
        """Take up what was known. The daemon of another machine knew it later than our own ledger."""
        self._recalled = True
        self.unseen = None if recalled.at is None else max(0.0, now - recalled.at)
        book.recall(recalled.memory, recalled.orders_until)
        theirs = tuple(_heard(alert) for alert in recalled.alerts)
        if self._was_daemon:
            known = {alert.key for alert in state.alerts.values() if alert.is_open}
            theirs = tuple(alert for alert in theirs if alert.key not in known)
        outage = self.unseen or 0.0
        unseen = None if self._is_apart and outage <= episodes.TOLERANCE else outage
        alerts = episodes.recalled(state.alerts, theirs, unseen, now)
        silences = {silence.id: silence for silence in recalled.silences if silence.ended_at is None}
        return replace(state, alerts=alerts, silences={**state.silences, **silences})


def _as_told(alert: Alert) -> Alert:
    """An alert of a daemon that is gone: what it told is not told again by us."""
    sent = [delivery.at for delivery in alert.delivery if delivery.state == "sent"]
    if not sent or alert.told is not None:
        return alert
    return replace(alert, told=alert.severity, told_at=max(sent), first_told_at=min(sent))


def delivered(state: State, event: Delivered) -> State:
    """The State after a channel said what became of a letter."""
    changed = {}
    for name in event.alerts:
        alert = state.alerts.get(name)
        if alert is not None:
            others = tuple(one for one in alert.delivery if one.channel != event.delivery.channel)
            changed[name] = _heard(replace(alert, delivery=(*others, event.delivery)))
    return replace(state, alerts={**state.alerts, **changed}) if changed else state


def _heard(alert: Alert) -> Alert:
    """With the channels that have stood in for others: they are told as well when it is over."""
    if not alert.is_open:
        return alert
    told = [one.channel for one in alert.delivery if one.state in ("sent", "merged") and one.kind in OPENING]
    new = tuple(name for name in told if name not in alert.told_on)
    return replace(alert, told_on=(*alert.told_on, *new)) if new else alert
