"""What one look changed and must be written down: gathered until it is handed over, as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.alerting.pipeline import Due, Happening, Routing, channels_for, unheard
from trainmon.lib import Instant, Seconds, scrub
from trainmon.model import Alert, AlertChanges, Notice, Silence, State

REFRESHED: Seconds = 60.0
"""An alert of which nothing changed but its words and when it was last found is written no more often."""

PAGE = re.compile(r"https?://[\w.:/~%@+=&?#,-]{1,500}", re.ASCII)
"""An address that a phone may open. What W&B's server says is a stranger's word."""

HISTORY_AT_MOST = 20_000
"""Happenings that wait to be written while nobody takes them."""


class PendingChanges:
    """Belongs to an Alerting."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.dues: list[Due] = []
        """What is to be told besides what the alerts say themselves: that one flaps, that somebody has taken it."""
        self.silences: dict[str, Silence] = {}
        self.memory: dict[str, str] = {}
        self._happened: list[Happening] = []
        self._dropped: dict[str, Alert] = {}
        self._new_memory: dict[str, str] = {}
        self._written: dict[str, tuple[Alert, Instant]] = {}
        """Each alert as it was written last, and when."""
        self._untold: dict[str, str] = {}
        """Why an alert that fires was told to no one, as it was noted last."""
        self._orders_until = 0
        self._orders_written = 0

    def note(self, happened: Iterable[Happening]) -> None:
        self._happened += happened
        del self._happened[:-HISTORY_AT_MOST]

    def drop(self, alerts: Iterable[Alert]) -> None:
        """These were pending, and are not any more."""
        for alert in alerts:
            if self._written.pop(alert.id, None) is not None:
                self._dropped[alert.id] = alert

    def remember(self, memory: Mapping[str, str]) -> None:
        self.memory |= memory
        self._new_memory |= memory

    def recall(self, memory: Mapping[str, str], orders_until: int) -> None:
        """What was remembered by whoever told people before."""
        newest = {
            key: max((self.memory[key], value), key=_stamp) for key, value in memory.items() if key in self.memory
        }
        self.memory = {**self.memory, **memory, **newest}
        self._orders_until = self._orders_written = max(self._orders_until, orders_until)

    def write_all(self) -> None:
        """All that is known is written with the next changes: it may be another ledger, or nobody's yet."""
        self._written.clear()

    def is_new_order(self, number: int | None) -> bool:
        """Whether an order was not carried out yet; from now on it was."""
        if number is None:
            return True
        if number <= self._orders_until:
            return False
        self._orders_until = number
        return True

    def account(self, alert: Alert, is_due: bool, routing: Routing) -> None:
        """Note why an alert that fires is told to no one, once for each reason: nothing is forgotten in silence."""
        if is_due or not alert.is_firing or alert.told is not None:
            self._untold.pop(alert.id, None)
            return
        why = unheard(alert)
        if why is None and not channels_for(alert, routing):
            why = "no channel is told of such"
        if why is not None and self._untold.get(alert.id) != why:
            self._untold[alert.id] = why
            self.note([(alert.id, "not told", why)])

    def changes(self, state: State, now: Instant) -> AlertChanges | None:
        """All that changed since it was last asked; None when that is nothing."""
        changed = tuple(alert for alert in state.alerts.values() if self._is_new(alert, now))
        orders = self._orders_until if self._orders_until != self._orders_written else None
        others = (self.notices, self._happened, self._dropped, self.silences, self._new_memory, orders)
        if not changed and not any(others):
            return None
        changes = AlertChanges(
            at=now,
            alerts=(*changed, *self._dropped.values()),
            silences=tuple(self.silences.values()),
            notices=tuple(_linked(notice, state) for notice in self.notices),
            history=tuple(self._happened),
            orders_until=orders,
            memory=self._new_memory,
        )
        self._written |= {alert.id: (alert, now) for alert in changed}
        self._forget(state.alerts)
        self._orders_written = self._orders_until
        self.notices, self.silences, self._happened = [], {}, []
        self._dropped, self._new_memory = {}, {}
        return changes

    def _forget(self, alerts: Mapping[str, Alert]) -> None:
        """What is no longer in the State was written long ago."""
        if len(self._written) > len(alerts):
            self._written = {name: one for name, one in self._written.items() if name in alerts}
            self._untold = {name: why for name, why in self._untold.items() if name in alerts}

    def _is_new(self, alert: Alert, now: Instant) -> bool:
        before = self._written.get(alert.id)
        if before is None:
            return True
        if before[0] is alert:
            return False
        return _essence(before[0]) != _essence(alert) or abs(now - before[1]) >= REFRESHED


def _linked(notice: Notice, state: State) -> Notice:
    """The notice with the page of its run; of a sign of life, where there is one run."""
    name = notice.run
    if name is None and notice.kind == "heartbeat" and len(state.runs) == 1:
        (name,) = state.runs
    run = state.runs.get(name) if name is not None else None
    attempt = run.wandb.current if run is not None and run.wandb is not None else None
    url = attempt.url if attempt is not None else None
    return replace(notice, link=url) if url is not None and PAGE.fullmatch(url) and scrub(url) == url else notice


def _stamp(value: str) -> float:
    """What is remembered is when something was done; the later of two is true."""
    try:
        return float(value)
    except ValueError:
        return 0.0


def _essence(alert: Alert) -> Alert:
    """The alert without what changes all the time: its words, which tell ages, and when it was found last."""
    return replace(alert, found_at=0.0, pending_since=None, summary="", evidence=(), advice="", data_why=None)
