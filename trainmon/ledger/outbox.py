"""The outbox: notifications to send, and their results; and the transactions that write them with their alerts.

A row is one notice for one channel.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from trainmon.ledger.actions import as_json, storable
from trainmon.ledger.alerts import HistoryLine, add_history, counted, delete_counted, write_changes
from trainmon.ledger.lease import LeaderNote, is_row_of, write_note
from trainmon.lib import Instant, by_key, drop_oldest
from trainmon.lib.threads import decoder
from trainmon.model import SEVERITIES, AlertChanges, Notice, Notification

log = logging.getLogger(__name__)

OutboxState = Literal["waiting", "leased", "sent", "dead", "merged", "stopped"]
Address = tuple[str, str]
"""The key of a notice and a channel: they identify a row."""

NOTIFICATIONS_AT_MOST = 10_000
"""How many are read at once for one channel."""
FINISHED_AT_MOST = 50_000
"""How many are kept that were sent or given up."""


LEVEL = "state = ?, attempts = ?, next_at = ?, sent_at = ?, words = ?, changed_at = ?"
"""The columns that change."""


def write_rows(connection: sqlite3.Connection, rows: Iterable[Notification], at: Instant) -> frozenset[Address]:
    """Write what is owed, and how far each of it is. A notice is at most once in the outbox of one channel: what nobody
    has tried yet is left as the ledger has it. Return what is done already by the ledger, though it is owed here."""
    done = set()
    for one in rows:
        notice, words = one.notice, one.answer and storable(one.answer)
        level = (one.state, one.attempts, one.next_at or at, one.sent_at, words, at)
        is_new = one.state == "waiting" and not one.attempts
        query = f"UPDATE outbox SET {LEVEL} WHERE key = ? AND channel = ? AND state NOT IN ('sent', 'merged')"
        if not is_new and connection.execute(query, (*level, *one.address)).rowcount:
            continue
        # Also if it is not new: the ledger may lack it, if its file was removed or replaced by a copy. Not OR IGNORE:
        # that would also skip an invalid notice, and its notifications would have no text.
        connection.execute(
            "INSERT INTO notices (key, kind, severity, at, reason, alerts, notice) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (key) DO NOTHING",
            (notice.key, notice.kind, notice.severity, notice.at, storable(notice.reason),
             " ".join(alert.id for alert in notice.alerts), as_json(notice)),
        )  # fmt: skip
        cursor = connection.execute(
            "INSERT INTO outbox (state, attempts, next_at, sent_at, words, changed_at, key, channel, made_at, because) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key, channel) DO NOTHING",
            (*level, *one.address, one.made_at, one.because and storable(one.because)),
        )
        if is_new and not cursor.rowcount:
            query = "SELECT 1 FROM outbox WHERE key = ? AND channel = ? AND state NOT IN ('waiting', 'leased')"
            done |= {one.address for _ in connection.execute(query, one.address)}
    return frozenset(done)


STAND_INS = (
    "FROM outbox AS other WHERE other.key = outbox.key AND outbox.because IS NULL "
    "AND other.because IS NOT NULL AND other.state IN ('sent', 'merged')"
)
"""The channels that delivered it in place of one that was down."""
NAMES = ("id", "channel", "state", "attempts", "next_at", "made_at", "sent_at", "answer", "because")
"""The fields of a Notification that its row has as columns."""
SELECT = (
    "SELECT outbox.id, channel, outbox.state, attempts, next_at, made_at, sent_at, words, because, "
    f"(SELECT group_concat(other.channel, char(10)) {STAND_INS}), notice, "
    "notices.key, notices.severity, notices.at, notices.reason FROM outbox JOIN notices ON notices.key = outbox.key"
)


def take_over(connection: sqlite3.Connection, now: Instant) -> list[Notification]:
    """The waiting notifications, the oldest first. What the previous program was sending waits again: it may not have
    arrived. So does what was given up and no channel delivered, at any age: the clock may have jumped."""
    connection.execute("UPDATE outbox SET state = 'waiting', changed_at = ? WHERE state = 'leased'", (now,))
    with counted(connection, "outbox", "1"):
        connection.execute(
            "UPDATE outbox SET state = 'waiting', changed_at = ? WHERE state = 'dead' AND NOT EXISTS "
            "(SELECT 1 FROM outbox AS other WHERE other.key = outbox.key AND other.state IN ('sent', 'merged'))",
            (now,),
        )
    return read_waiting(connection)


def read_waiting(connection: sqlite3.Connection) -> list[Notification]:
    """The oldest waiting notifications of each channel."""
    channels = connection.execute("SELECT DISTINCT channel FROM outbox WHERE state IN ('waiting', 'leased')").fetchall()
    query = f"{SELECT} WHERE channel = ? AND state IN ('waiting', 'leased') ORDER BY outbox.id LIMIT ?"
    rows = (row for (name,) in channels for row in connection.execute(query, (name, NOTIFICATIONS_AT_MOST)))
    return _notifications(rows)


def read_newest(connection: sqlite3.Connection, since: Instant, limit: int) -> list[Notification]:
    """The newest `limit` notifications whose state changed since then, the newest last."""
    rows = connection.execute(f"{SELECT} WHERE outbox.changed_at >= ? ORDER BY outbox.id DESC LIMIT ?", (since, limit))
    return _notifications(rows)[::-1]


def read_sent(connection: sqlite3.Connection, since: Instant, until: Instant) -> dict[str, tuple[Instant, ...]]:
    """When each channel sent a message in that time, the oldest first."""
    query = "SELECT channel, sent_at FROM outbox WHERE state = 'sent' AND sent_at BETWEEN ? AND ? ORDER BY sent_at"
    found = by_key(connection.execute(query, (since, until)))
    return {channel: tuple(times) for channel, times in found.items()}


class Counts(NamedTuple):
    """How many notifications wait, and how many were given up."""

    waiting: int = 0
    oldest_at: Instant | None = None
    dead: int = 0
    """Given up since the requested time."""


def count(connection: sqlite3.Connection, since: Instant) -> Counts:
    """Count what waits and no channel has delivered, and what was given up since then."""
    waiting, oldest = connection.execute(
        "SELECT count(*), min(made_at) FROM outbox WHERE state IN ('waiting', 'leased') "
        f"AND NOT EXISTS (SELECT 1 {STAND_INS})"
    ).fetchone()
    (dead,) = connection.execute(
        "SELECT count(*) FROM outbox WHERE state = 'dead' AND made_at > ?", (since,)
    ).fetchone()
    return Counts(waiting, oldest, dead)


def _notifications(rows: Iterable[tuple[Any, ...]]) -> list[Notification]:
    found = []
    for row in rows:
        *plain, delivered_by, text, key, severity, at, reason = row
        try:
            notice = decoder(Notice).decode(text)
        except msgspec.DecodeError as error:
            log.warning("the outbox's row %s is of another version: %s", plain[0], error)
            notice = Notice(
                key=key,
                kind="direct",
                reason=reason,
                severity=severity if severity in SEVERITIES else "critical",
                at=at,
                channels=(plain[1],),
                title="An alert from another version of trainmon-tui",
                lines=(
                    f"{key}: {reason}",
                    "Another version of this program wrote this alert to the ledger and did not send it.",
                    "`trainmon-tui status` lists the open alerts.",
                ),
            )
        by = () if delivered_by is None else tuple(delivered_by.split("\n"))
        found.append(Notification(notice=notice, delivered_by=by, **dict(zip(NAMES, plain, strict=True))))
    return found


def prune_outbox(connection: sqlite3.Connection, before: Instant, limit: int = FINISHED_AT_MOST) -> None:
    """Delete what was finished before that, and what exceeds the limit. What waits is kept at any age."""
    delete_counted(connection, "outbox", "made_at < ? AND state NOT IN ('waiting', 'leased')", (before,))
    finished = "SELECT id FROM outbox WHERE state NOT IN ('waiting', 'leased') ORDER BY id DESC LIMIT -1 OFFSET ?"
    delete_counted(connection, "outbox", f"id IN ({finished})", (limit,))
    connection.execute(
        "DELETE FROM notices WHERE (at < ? OR rowid <= (SELECT max(rowid) FROM notices) - ?) "
        "AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.key = notices.key)",
        (before, limit),
    )


# ---- one transaction of alerting -------------------------------------------------------------------------------------

HISTORY_AT_MOST = 20_000
ROWS_AT_MOST = 100_000
"""The limits while the ledger is unavailable: what is dropped was sent without it long ago."""


@dataclass(slots=True)
class Transaction:
    """Collects the newest of each thing until it is written."""

    changes: AlertChanges | None = None
    """Without notices and history."""
    history: deque[HistoryLine] = field(default_factory=lambda: deque(maxlen=HISTORY_AT_MOST))
    rows: dict[Address, Notification] = field(default_factory=dict)
    note: LeaderNote | None = None

    def __bool__(self) -> bool:
        return bool(self.changes or self.rows or self.note)

    def add_changes(self, changes: AlertChanges) -> None:
        """Add what one evaluation changed, but for its notices: each of their channels is owed one."""
        known = self.changes or AlertChanges(at=changes.at)
        self.changes = AlertChanges(
            at=changes.at,
            alerts=tuple({one.id: one for one in (*known.alerts, *changes.alerts)}.values()),
            silences=tuple({one.id: one for one in (*known.silences, *changes.silences)}.values()),
            requests_until=known.requests_until if changes.requests_until is None else changes.requests_until,
            memory={**known.memory, **changes.memory},
        )
        self.history.extend(HistoryLine(changes.at, *line) for line in changes.history)

    def put(self, rows: Iterable[Notification]) -> None:
        """Add what is owed, or how far it is now."""
        self.rows |= {one.address: one for one in rows}
        drop_oldest(self.rows, ROWS_AT_MOST)

    def absorb(self, newer: Transaction) -> None:
        """Add a newer transaction: the newest of each thing counts."""
        if newer.changes is not None:
            self.add_changes(newer.changes)
        self.history.extend(newer.history)
        self.put(newer.rows.values())
        self.note = newer.note or self.note

    def write(
        self, connection: sqlite3.Connection, now: Instant, holder: str | None = None
    ) -> frozenset[Address] | None:
        """Write it, and return what `write_rows` does. With `holder`, return None and write nothing if the lease row
        names another program."""
        if holder is not None and not is_row_of(connection, holder):
            return None
        if self.changes is not None:
            write_changes(connection, self.changes)
        add_history(connection, self.history)
        if self.note is not None:
            write_note(connection, self.note)
        return write_rows(connection, self.rows.values(), now)
