"""What the next page of the ledger will hold: the newest of each thing, however long the ledger is away."""

from __future__ import annotations

from collections import deque
from typing import Any

from trainmon.ledger.alerts import Happening
from trainmon.ledger.lease import LeaderNote
from trainmon.ledger.outbox import Address, Extra, Mark
from trainmon.ledger.transaction import Transaction
from trainmon.lib import Instant
from trainmon.model import Alert, AlertChanges, Notice, Silence

LINES_AT_MOST = 20_000
"""Of the history, while the ledger is away."""
NOTICES_AT_MOST = 20_000
MARKS_AT_MOST = 100_000


class Batch:
    """It belongs to whoever has the lock of the books."""

    def __init__(self) -> None:
        self._at: Instant | None = None
        self._alerts: dict[str, Alert] = {}
        self._silences: dict[str, Silence] = {}
        self._notices: dict[str, Notice] = {}
        self._history: deque[Happening] = deque(maxlen=LINES_AT_MOST)
        self._memory: dict[str, str] = {}
        self._orders_until: int | None = None
        self._extras: dict[Address, Extra] = {}
        self._marks: dict[Address, Mark] = {}
        self._duty: LeaderNote | None = None

    def __bool__(self) -> bool:
        return bool(self._at is not None or self._extras or self._marks or self._duty)

    def enter(self, changes: AlertChanges) -> tuple[Notice, ...]:
        """Take in what a look changed; which of its notices were not here yet."""
        new = tuple(notice for notice in changes.notices if notice.key not in self._notices)
        self._at = changes.at
        self._alerts |= {alert.id: alert for alert in changes.alerts}
        self._silences |= {silence.id: silence for silence in changes.silences}
        self._notices |= {notice.key: notice for notice in new}
        self._history.extend(Happening(changes.at, *line) for line in changes.history)
        self._memory |= changes.memory
        if changes.orders_until is not None:
            self._orders_until = changes.orders_until
        _shorten(self._notices, NOTICES_AT_MOST)
        return new

    def add(self, extra: Extra) -> bool:
        """Take in a letter besides; whether it was not here yet."""
        address = (extra.notice.key, extra.channel)
        notice = self._notices.get(extra.notice.key)
        if address in self._extras or (notice is not None and extra.channel in notice.channels):
            return False
        self._extras[address] = extra
        return True

    def mark(self, mark: Mark) -> None:
        self._marks[mark.address] = mark
        _shorten(self._marks, MARKS_AT_MOST)

    def note(self, duty: LeaderNote) -> None:
        self._duty = duty

    def absorb(self, newer: Batch) -> None:
        """What came meanwhile: the newest of each counts."""
        self._at = newer._at if newer._at is not None else self._at
        self._alerts |= newer._alerts
        self._silences |= newer._silences
        self._notices |= newer._notices
        self._history.extend(newer._history)
        self._memory |= newer._memory
        if newer._orders_until is not None:
            self._orders_until = newer._orders_until
        self._extras |= newer._extras
        self._marks |= newer._marks
        self._duty = newer._duty or self._duty
        _shorten(self._notices, NOTICES_AT_MOST)
        _shorten(self._marks, MARKS_AT_MOST)

    def addresses(self) -> list[Address]:
        """Of all letters that it makes."""
        named = [(notice.key, channel) for notice in self._notices.values() for channel in notice.channels]
        return [*named, *self._extras]

    def page(self) -> Transaction:
        """All of it, to be written."""
        changes = None
        if self._at is not None:
            changes = AlertChanges(
                at=self._at,
                alerts=tuple(self._alerts.values()),
                silences=tuple(self._silences.values()),
                notices=tuple(self._notices.values()),
                orders_until=self._orders_until,
                memory=dict(self._memory),
            )
        return Transaction(
            changes,
            tuple(self._history),
            tuple(self._extras.values()),
            tuple(self._marks.values()),
            self._duty,
        )


def _shorten(kept: dict[Any, Any], limit: int) -> None:
    """The oldest go first: they were told directly long ago."""
    while len(kept) > limit:
        del kept[next(iter(kept))]
