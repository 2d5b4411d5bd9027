"""Writes alerts, their history, silences, requests and the memory to the ledger, and reads them. Counts what the whole
ledger has held.

The outbox: notifications to send, and their results; and the transactions that write them with their alerts. A row is
one notice for one channel.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from trainmon.analysis.retries import SEEN
from trainmon.ledger.actions import as_json, decode_rows, replace_statement, storable, storable_row
from trainmon.ledger.lease import LeaderNote, is_row_of, write_note
from trainmon.lib import Instant, Seconds, by_key, drop_oldest
from trainmon.lib.threads import decoder
from trainmon.model import (
    KEPT_RESOLVED,
    SEVERITIES,
    Alert,
    AlertChanges,
    AlertRequest,
    NodeEvent,
    Notice,
    Notification,
    Silence,
    StoredAlerts,
)

log = logging.getLogger(__name__)

ALERTS_AT_MOST = 20_000
EPISODES_AT_MOST = 3
"""So many resolved alerts of one subject are read: a program that starts needs no more, and one may flap all day."""
END_NOTIFIED_WITHIN: Seconds = 1_800.0
"""Those that resolved within this time are all read: their end may not be notified yet."""
SILENCES_AT_MOST = 2_000
REQUESTS_AT_ONCE = 200
RESOLVED_AT_MOST = 20_000
HISTORY_LINES_AT_MOST = 200_000
"""Resolved alerts and history are also limited in number: a subject that flaps for a month makes an alert a minute."""
REQUESTS_UNTIL = "orders_until"
"""The name in the memory of the number of the last request that was carried out."""

PRUNED = "pruned "
"""How the names in the memory begin that keep the totals of deleted rows: a total never shrinks."""
LOG_AWAITED: Seconds = 3_600.0
"""After this time the end of the log of an ended attempt is not expected any more. Until then its cause may change."""
TOTALS = {
    "notifications": (
        "outbox", "state || ' ' || channel", "count(*)", "state IN ('sent', 'merged', 'dead', 'stopped')",
    ),
    "attempts": ("training_attempts", "termination_reason", "count(*)", "termination_reason IS NOT NULL"),
    "gpu_seconds": (
        "training_attempts", "termination_reason", "sum(gpu_seconds)",
        "termination_reason IS NOT NULL AND gpu_seconds IS NOT NULL",
    ),
}  # fmt: skip
"""What is counted: the table, the label of a row, the sum, and the rows."""
SETTLED = (
    "julianday(ended_at) < julianday(?, 'unixepoch') "  # first: it decides without the JSON of old ones
    "OR NOT coalesce(json_extract(attempt, '$.end.awaits_log'), 0)"
)
"""The attempts whose cause does not change any more; all that ended before a time."""

ALERT_COLUMNS = (
    "id", "rule", "subject", "severity", "phase", "data", "summary", "cluster", "run", "node", "since", "fired_at",
    "resolved_at", "acknowledged_by", "muted_until",
)  # fmt: skip
SILENCE_COLUMNS = ("id", "rule", "subject", "run", "node", "until", "by", "why", "made_at", "ended_at")
REQUEST_COLUMNS = ("at", "verb", "by", "alert", "why", "via")


class HistoryLine(NamedTuple):
    """One line of the history of an alert."""

    at: Instant
    alert_id: str
    what: str
    text: str


def fields(value: object, columns: Iterable[str]) -> tuple[str | float | None, ...]:
    """The fields of a value that its row has as columns."""
    return storable_row(getattr(value, name) for name in columns)


def write_changes(connection: sqlite3.Connection, changes: AlertChanges) -> None:
    """Write alerts, silences and the memory; notices and the history have their own functions."""
    connection.executemany(
        replace_statement("alerts", (*ALERT_COLUMNS, "written_at", "alert")),
        ([*fields(alert, ALERT_COLUMNS), changes.at, as_json(alert)] for alert in changes.alerts),
    )
    connection.executemany(
        replace_statement("silences", (*SILENCE_COLUMNS, "silence")),
        ([*fields(silence, SILENCE_COLUMNS), as_json(silence)] for silence in changes.silences),
    )
    memory: dict[str, Instant | int] = {**changes.memory}
    if changes.requests_until is not None:
        memory[REQUESTS_UNTIL] = changes.requests_until
    connection.executemany(
        "INSERT OR REPLACE INTO memory (name, value) VALUES (?, ?)",
        ((storable(name), str(value)) for name, value in memory.items()),
    )


def add_request(connection: sqlite3.Connection, request: AlertRequest) -> int:
    """Write a request for the leader and return its number. The leader carries out every number above the last one. So
    numbers also grow in a new ledger, when the old one was removed or replaced by a copy."""
    (last,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'orders'").fetchone()
    number = max((last or 0) + 1, int(request.at * 1000))
    connection.execute(
        replace_statement("orders", ("number", *REQUEST_COLUMNS, "order")),
        [number, *fields(request, REQUEST_COLUMNS), as_json(request)],
    )
    return number


def read_requests(connection: sqlite3.Connection, after: int) -> list[tuple[int, AlertRequest]]:
    """The requests after that number, the oldest first."""
    rows = connection.execute(
        'SELECT number, "order" FROM orders WHERE number > ? ORDER BY number LIMIT ?', (after, REQUESTS_AT_ONCE)
    )
    return [(row[0], order) for row in rows for order in decode_rows([row], AlertRequest, "request")]


def read_stored_alerts(connection: sqlite3.Connection, now: Instant) -> StoredAlerts:
    """What the ledger knows of alerts: those that are open, whose end may still be notified, and the last of each
    subject."""
    newest = (
        "SELECT number FROM (SELECT rowid AS number, "
        "row_number() OVER (PARTITION BY rule, subject ORDER BY since DESC, rowid DESC) AS place "
        "FROM alerts WHERE phase = 'resolved' AND resolved_at > ?) WHERE place <= ?"
    )
    alerts = connection.execute(
        f"SELECT id, alert FROM alerts WHERE phase != 'resolved' OR resolved_at > ? OR rowid IN ({newest}) "
        "ORDER BY phase = 'resolved', since DESC LIMIT ?",
        (now - END_NOTIFIED_WITHIN, now - KEPT_RESOLVED, EPISODES_AT_MOST, ALERTS_AT_MOST),
    )
    silences = connection.execute(
        "SELECT id, silence FROM silences WHERE until > ? AND ended_at IS NULL ORDER BY made_at DESC LIMIT ?",
        (now, SILENCES_AT_MOST),
    )
    rows = connection.execute("SELECT name, CAST(value AS REAL) FROM memory")
    memory = {name: value for name, value in rows if not name.startswith(PRUNED)}
    until = memory.pop(REQUESTS_UNTIL, 0.0)
    written = connection.execute("SELECT max(written_at) FROM alerts UNION ALL SELECT max(last_tick_at) FROM duty")
    return StoredAlerts(
        alerts=tuple(decode_rows(alerts, Alert, "alert")),
        silences=tuple(decode_rows(silences, Silence, "silence")),
        requests_until=int(until),
        memory=memory,
        at=max((at for (at,) in written if at is not None), default=None),
    )


def read_history(connection: sqlite3.Connection, since: Instant, limit: int) -> list[HistoryLine]:
    """The newest `limit` lines of the history since then, the newest last."""
    rows = connection.execute(
        "SELECT at, alert_id, what, words FROM alert_history WHERE at >= ? ORDER BY number DESC LIMIT ?",
        (since, limit),
    )
    return [HistoryLine(*row) for row in rows][::-1]


def read_alerts_of(
    connection: sqlite3.Connection, run: str, nodes: Iterable[str], began: Instant, until: Instant
) -> list[Alert]:
    """The alerts of a run and of these nodes that fired in this time, the oldest first."""
    found = connection.execute(
        "SELECT id, alert FROM alerts WHERE fired_at BETWEEN ? AND ? "
        "AND (run = ? OR node IN (SELECT value FROM json_each(?))) ORDER BY fired_at DESC LIMIT ?",
        (began, until, run, as_json(list(nodes)), ALERTS_AT_MOST),
    )
    return decode_rows(found, Alert, "alert")[::-1]


def read_node_events(connection: sqlite3.Connection, since: Instant, node: str | None = None) -> list[NodeEvent]:
    """What alerts say of the history of nodes, or of one, the oldest first. An Xid of a program is none of its node."""
    rows = connection.execute(
        "SELECT fired_at, cluster, node, rule, summary FROM alerts WHERE fired_at >= ? AND node = coalesce(?, node) "
        "AND rule IN (SELECT value FROM json_each(?)) AND NOT (rule = 'xid' AND json_extract(alert, '$.event')) "
        "ORDER BY fired_at DESC LIMIT ?",
        (since, node, as_json(list(SEEN)), ALERTS_AT_MOST),
    )
    events = (
        NodeEvent(at=at, cluster=cluster, node=name, what=rule, text=text) for at, cluster, name, rule, text in rows
    )
    return [*events][::-1]


AGED = {
    "alerts": "phase = 'resolved' AND coalesce(resolved_at, since)",
    "alert_history": "at",
    "silences": "coalesce(ended_at, until)",
    "orders": "at",
    "actions": "asked_at",
    "action_texts": "at",
}
"""The tables of which rows are deleted by their age alone, and the time that counts."""


def prune_alerts(
    connection: sqlite3.Connection,
    before: Instant,
    resolved: int = RESOLVED_AT_MOST,
    lines: int = HISTORY_LINES_AT_MOST,
) -> None:
    """Delete what ended before that, also of actions, and what exceeds the limits."""
    for table, ended_at in AGED.items():
        connection.execute(f"DELETE FROM {table} WHERE {ended_at} < ?", (before,))
    connection.execute(
        "DELETE FROM alerts WHERE rowid IN (SELECT rowid FROM alerts WHERE phase = 'resolved' "
        "ORDER BY resolved_at DESC LIMIT -1 OFFSET ?)",  # by the index: a sort of all would take megabytes
        (resolved,),
    )
    connection.execute(
        "DELETE FROM alert_history WHERE number <= (SELECT max(number) FROM alert_history) - ?", (lines,)
    )


def delete_counted(connection: sqlite3.Connection, table: str, condition: str, values: tuple[object, ...]) -> None:
    """Delete rows of a table that `read_totals` counts. They stay part of its totals."""
    with counted(connection, table, condition, values):
        connection.execute(f"DELETE FROM {table} WHERE {condition}", values)


@contextmanager
def counted(
    connection: sqlite3.Connection,
    table: str,
    condition: str,
    values: tuple[object, ...] = (),
    settled: Instant | None = None,
) -> Iterator[None]:
    """Change these rows of a table that `read_totals` counts. What they no longer add to a total stays part of it.

    To be called within a transaction that began with the right to write. One that reads first and then writes does
    not wait for another program's, but fails (sqlite.org/rescode.html, SQLITE_BUSY).
    """
    connection.execute("SAVEPOINT counted")
    names = [total for total, (one, *_) in TOTALS.items() if one == table]
    before = {total: _sums(connection, total, condition, values, settled) for total in names}
    yield
    for total in names:
        after = _sums(connection, total, condition, values, settled)
        lost = {label: amount - after.get(label, 0.0) for label, amount in before[total].items()}
        connection.executemany(
            "INSERT INTO memory (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE "
            "SET value = CAST(value AS REAL) + CAST(excluded.value AS REAL)",
            ((f"{PRUNED}{total} {label}", str(amount)) for label, amount in lost.items() if amount > 0),
        )
    connection.execute("RELEASE counted")


def read_totals(connection: sqlite3.Connection, now: Instant) -> dict[str, dict[str, float]]:
    """What this ledger has held since it was created: `notifications` by state and channel (`sent phone`); `attempts`
    that have ended, and their `gpu_seconds`, by cause. An attempt counts once its cause does not change any more. A
    total never shrinks: what was given up and is sent later counts with both."""
    found: dict[str, dict[str, float]] = {}
    for total in TOTALS:
        sums = found[total] = _sums(connection, total, "1", (), now - LOG_AWAITED)
        begin = f"{PRUNED}{total} "
        rows = connection.execute(
            "SELECT substr(name, ?), CAST(value AS REAL) FROM memory WHERE name GLOB ?", (len(begin) + 1, f"{begin}*")
        )
        for label, number in rows:
            sums[label] = sums.get(label, 0.0) + number
    return found


def _sums(
    connection: sqlite3.Connection, total: str, condition: str, values: tuple[object, ...], settled: Instant | None
) -> dict[str, float]:
    """What these rows add to a total, by label. `settled`: of attempts that ended after it, those whose cause may still
    change are left out."""
    table, label, amount, counts = TOTALS[total]
    is_settled = SETTLED if settled is not None and table == "training_attempts" else "? IS NULL OR 1"
    rows = connection.execute(
        f"SELECT {label}, {amount} FROM {table} WHERE ({condition}) AND {counts} AND ({is_settled}) GROUP BY 1",
        (*values, settled),
    )
    return dict(rows.fetchall())


# ---- the outbox ------------------------------------------------------------------------------------------------------

OutboxState = Literal["waiting", "leased", "sent", "dead", "merged", "stopped"]
Address = tuple[str, str]
"""The key of a notice and a channel: they identify a row."""

NOTIFICATIONS_AT_MOST = 10_000
"""How many are read at once for one channel."""
FINISHED_AT_MOST = 50_000
"""How many are kept that were sent or given up."""


def write_rows(connection: sqlite3.Connection, rows: Iterable[Notification], at: Instant) -> frozenset[Address]:
    """Write what is owed, and how far each of it is. A notice is at most once in the outbox of one channel: what nobody
    has tried yet is left as the ledger has it. Return what is done already by the ledger, though it is owed here."""
    done = set()
    for one in rows:
        notice, words = one.notice, one.answer and storable(one.answer)
        level = (one.state, one.attempts, one.next_at or at, one.sent_at, words, at)
        is_new = one.state == "waiting" and not one.attempts
        query = (
            "UPDATE outbox SET state = ?, attempts = ?, next_at = ?, sent_at = ?, words = ?, changed_at = ? "
            "WHERE key = ? AND channel = ? AND state NOT IN ('sent', 'merged')"
        )
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
        connection.executemany(
            "INSERT INTO alert_history (at, alert_id, what, words) VALUES (?, ?, ?, ?)",
            ((line.at, line.alert_id, line.what, storable(line.text)) for line in self.history),
        )
        if self.note is not None:
            write_note(connection, self.note)
        return write_rows(connection, self.rows.values(), now)
