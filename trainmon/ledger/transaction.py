"""One transaction of alerting: everything that is written to the ledger at once."""

from __future__ import annotations

import sqlite3
from collections import deque
from typing import Any

from trainmon.ledger.alerts import HistoryLine, add_history, write_changes
from trainmon.ledger.lease import LeaderNote, is_row_of, write_note
from trainmon.ledger.outbox import Address, Mark, StandIn, write_marks, write_notices
from trainmon.lib import Instant
from trainmon.model import Alert, AlertChanges, Notice, Silence

HISTORY_AT_MOST = 20_000
NOTICES_AT_MOST = 20_000
MARKS_AT_MOST = 100_000
"""The limits while the ledger is unavailable."""


class Transaction:
    """Collects the newest of each thing until it is written. The lock of its journal guards it."""

    def __init__(self) -> None:
        self._at: Instant | None = None
        self._alerts: dict[str, Alert] = {}
        self._silences: dict[str, Silence] = {}
        self._notices: dict[str, Notice] = {}
        self._history: deque[HistoryLine] = deque(maxlen=HISTORY_AT_MOST)
        self._memory: dict[str, str] = {}
        self._requests_until: int | None = None
        self._stand_ins: dict[Address, StandIn] = {}
        self._marks: dict[Address, Mark] = {}
        self.note: LeaderNote | None = None

    def __bool__(self) -> bool:
        return bool(self._at is not None or self._stand_ins or self._marks or self.note)

    def add_changes(self, changes: AlertChanges) -> tuple[Notice, ...]:
        """Add what one evaluation changed; return its notices that are new here."""
        new = tuple(notice for notice in changes.notices if notice.key not in self._notices)
        added = Transaction()
        added._at = changes.at
        added._alerts = {alert.id: alert for alert in changes.alerts}
        added._silences = {silence.id: silence for silence in changes.silences}
        added._notices = {notice.key: notice for notice in new}
        added._history.extend(HistoryLine(changes.at, *line) for line in changes.history)
        added._memory, added._requests_until = dict(changes.memory), changes.requests_until
        self.absorb(added)
        return new

    def add_stand_in(self, stand_in: StandIn) -> bool:
        """Add a notification for a stand-in; return whether it is new here."""
        address = (stand_in.notice.key, stand_in.channel)
        notice = self._notices.get(stand_in.notice.key)
        if address in self._stand_ins or (notice is not None and stand_in.channel in notice.channels):
            return False
        self._stand_ins[address] = stand_in
        return True

    def add_mark(self, mark: Mark) -> None:
        self._marks[mark.key, mark.channel] = mark
        _drop_oldest(self._marks, MARKS_AT_MOST)

    def absorb(self, newer: Transaction) -> None:
        """Add a newer transaction: the newest of each thing counts."""
        self._at = newer._at if newer._at is not None else self._at
        self._alerts |= newer._alerts
        self._silences |= newer._silences
        self._notices |= newer._notices
        self._history.extend(newer._history)
        self._memory |= newer._memory
        self._requests_until = newer._requests_until if newer._requests_until is not None else self._requests_until
        self._stand_ins |= newer._stand_ins
        self._marks |= newer._marks
        self.note = newer.note or self.note
        _drop_oldest(self._notices, NOTICES_AT_MOST)
        _drop_oldest(self._marks, MARKS_AT_MOST)

    def addresses(self) -> list[Address]:
        """The addresses of all notifications that it creates."""
        return [
            *((key, channel) for key, notice in self._notices.items() for channel in notice.channels),
            *self._stand_ins,
        ]

    def write(
        self, connection: sqlite3.Connection, now: Instant, holder: str | None = None
    ) -> frozenset[Address] | None:
        """Write it and return which notifications are new. With `holder`, return None and write nothing if the lease
        row names another program."""
        if holder is not None and not is_row_of(connection, holder):
            return None
        if self._at is not None:
            changes = AlertChanges(
                at=self._at,
                alerts=tuple(self._alerts.values()),
                silences=tuple(self._silences.values()),
                requests_until=self._requests_until,
                memory=self._memory,
            )
            write_changes(connection, changes)
        add_history(connection, self._history)
        if self.note is not None:
            write_note(connection, self.note)
        created = write_notices(connection, self._notices.values(), self._stand_ins.values(), now)
        write_marks(connection, self._marks.values())
        return created


def _drop_oldest(kept: dict[Any, Any], limit: int) -> None:
    """Drop the oldest: they were sent without the ledger long ago."""
    while len(kept) > limit:
        del kept[next(iter(kept))]
