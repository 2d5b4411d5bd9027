"""What is handed over: changes to the outbox, and the alerts of one leader to the next. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.alerting.pipeline import episode
from trainmon.alerting.pipeline.lifecycle import HistoryEntry
from trainmon.alerting.pipeline.routing import DueAlert, Routing, channels_for, quiet_because
from trainmon.lib import Instant, Seconds, dated, scrub
from trainmon.model import Alert, AlertChanges, Delivered, Leadership, Notice, Silence, State, StoredAlerts

# ---- the changes of one evaluation, collected until they are handed over to the outbox as one ------------------------

REWRITE_EVERY: Seconds = 60.0
"""An alert of which only the texts and `found_at` changed is written at most this often."""

PAGE_URL = re.compile(r"https?://[\w.:/~%@+=&?#,-]{1,500}", re.ASCII)
"""An address that a phone may open. The address comes from W&B's server and is not trusted."""

HISTORY_AT_MOST = 20_000
"""History entries that are kept while no outbox takes them."""


class PendingChanges:
    """The changes that one AlertManager has not handed over yet."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.extra_due: list[DueAlert] = []
        """Notifications beside those that routing finds: an alert flaps, or was acknowledged."""
        self.silences: dict[str, Silence] = {}
        self.memory: dict[str, Instant] = {}
        self._history: list[HistoryEntry] = []
        self._dropped: dict[str, Alert] = {}
        self._new_memory: dict[str, Instant] = {}
        self._written: dict[str, tuple[Alert, Instant]] = {}
        """Each alert as it was last written, and when."""
        self._not_notified: dict[str, str] = {}
        """The noted reason why a firing alert was not notified."""
        self._orders_until = 0
        self._orders_written = 0

    def note(self, entries: Iterable[HistoryEntry]) -> None:
        self._history += entries
        del self._history[:-HISTORY_AT_MOST]

    def drop(self, alerts: Iterable[Alert]) -> None:
        """These alerts were pending and never fired."""
        for alert in alerts:
            if self._written.pop(alert.id, None) is not None:
                self._dropped[alert.id] = alert

    def remember(self, memory: Mapping[str, Instant]) -> None:
        self.memory |= memory
        self._new_memory |= memory

    def restore(self, memory: Mapping[str, Instant], requests_until: int) -> None:
        """Take over the memory of the leader before."""
        self.memory = {**memory, **{key: at for key, at in self.memory.items() if at >= memory.get(key, 0.0)}}
        self._orders_until = self._orders_written = max(self._orders_until, requests_until)

    def write_alerts(self) -> None:
        """Write every alert with the next changes: the ledger may be another one."""
        self._written.clear()

    def write_all(self, state: State) -> None:
        """Write everything with the next changes: the ledger is a new one."""
        self.write_alerts()
        self.silences |= {one.id: one for one in state.silences.values() if not one.window}
        self._new_memory, self._orders_written = dict(self.memory), 0

    def is_new_request(self, number: int | None) -> bool:
        """Whether a request was not applied yet. From now on it counts as applied."""
        is_new = number is None or number > self._orders_until
        self._orders_until = max(self._orders_until, number or 0)
        return is_new

    def account(self, alert: Alert, is_due: bool, routing: Routing) -> None:
        """Note in the history why a firing alert is not notified, once for each reason."""
        if is_due or not alert.is_firing or alert.notified_as is not None:
            self._not_notified.pop(alert.id, None)
            return
        why = quiet_because(alert) or (None if channels_for(alert, routing) else "no channel receives it")
        if why is not None and self._not_notified.get(alert.id) != why:
            self._not_notified[alert.id] = why
            self.note([(alert.id, "not told", why)])

    def take(self, state: State, now: Instant) -> AlertChanges | None:
        """All changes since the last call; None if there are none."""
        changed = tuple(alert for alert in state.alerts.values() if self._is_new(alert, now))
        orders = self._orders_until if self._orders_until != self._orders_written else None
        others = (self.notices, self._history, self._dropped, self.silences, self._new_memory, orders)
        if not changed and not any(others):
            return None
        changes = AlertChanges(
            at=now,
            alerts=(*changed, *self._dropped.values()),
            silences=tuple(self.silences.values()),
            notices=tuple(_linked(notice, state) for notice in self.notices),
            history=tuple(self._history),
            requests_until=orders,
            memory=self._new_memory,
        )
        self._written |= {alert.id: (alert, now) for alert in changed}
        if len(self._written) > len(state.alerts):
            self._written = {name: one for name, one in self._written.items() if name in state.alerts}
            self._not_notified = {name: why for name, why in self._not_notified.items() if name in state.alerts}
        self._orders_written = self._orders_until
        self.notices, self.silences, self._history, self._dropped, self._new_memory = [], {}, [], {}, {}
        return changes

    def _is_new(self, alert: Alert, now: Instant) -> bool:
        before = self._written.get(alert.id)
        if before is None or before[0] is alert:
            return before is None
        return _without_texts(before[0]) != _without_texts(alert) or abs(now - before[1]) >= REWRITE_EVERY


def _linked(notice: Notice, state: State) -> Notice:
    """The notification with the W&B page of its run; a heartbeat has one if there is one run."""
    name = notice.run
    if name is None and notice.kind == "heartbeat" and len(state.runs) == 1:
        (name,) = state.runs
    run = state.runs.get(name or "")
    attempt = run.wandb.current if run is not None and run.wandb is not None else None
    url = attempt.url if attempt is not None else None
    return replace(notice, link=url) if url is not None and PAGE_URL.fullmatch(url) and scrub(url) == url else notice


def _without_texts(alert: Alert) -> Alert:
    """The alert without what changes all the time: `found_at`, and texts with ages."""
    return replace(alert, found_at=0.0, pending_since=None, summary="", evidence=(), advice="", data_why=None)


# ---- alert leadership ------------------------------------------------------------------------------------------------

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
