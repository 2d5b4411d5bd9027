"""Writes alerts, their history, silences, requests and the memory to the ledger, and reads them. Counts what the whole
ledger has held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from trainmon.analysis.retries import SEEN
from trainmon.ledger.actions import as_json, decode_rows, storable
from trainmon.lib import Instant, Seconds
from trainmon.model import KEPT_RESOLVED, Alert, AlertChanges, AlertRequest, NodeEvent, Silence, StoredAlerts

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


def replace_statement(table: str, columns: Iterable[str]) -> str:
    """The statement that writes a row in place of the one with its key."""
    names = [f'"{name}"' for name in columns]
    return f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def fields(value: object, columns: Iterable[str]) -> list[str | float | None]:
    """The fields of a value that its row has as columns."""
    values = (getattr(value, name) for name in columns)
    return [storable(field) if isinstance(field, str) else field for field in values]


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


def add_history(connection: sqlite3.Connection, lines: Iterable[HistoryLine]) -> None:
    connection.executemany(
        "INSERT INTO alert_history (at, alert_id, what, words) VALUES (?, ?, ?, ?)",
        ((line.at, line.alert_id, line.what, storable(line.text)) for line in lines),
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


def prune_alerts(
    connection: sqlite3.Connection,
    before: Instant,
    resolved: int = RESOLVED_AT_MOST,
    lines: int = HISTORY_LINES_AT_MOST,
) -> None:
    """Delete what ended before that, and what exceeds the limits."""
    connection.execute("DELETE FROM alerts WHERE phase = 'resolved' AND coalesce(resolved_at, since) < ?", (before,))
    connection.execute(
        "DELETE FROM alerts WHERE rowid IN (SELECT rowid FROM alerts WHERE phase = 'resolved' "
        "ORDER BY resolved_at DESC LIMIT -1 OFFSET ?)",  # by the index: a sort of all would take megabytes
        (resolved,),
    )
    connection.execute("DELETE FROM alert_history WHERE at < ?", (before,))
    connection.execute(
        "DELETE FROM alert_history WHERE number <= (SELECT max(number) FROM alert_history) - ?", (lines,)
    )
    connection.execute("DELETE FROM silences WHERE coalesce(ended_at, until) < ?", (before,))
    connection.execute("DELETE FROM orders WHERE at < ?", (before,))


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
