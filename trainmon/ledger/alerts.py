"""Alerts, their history, silences, orders and what else survives a restart, as rows of the ledger and back."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from trainmon.ledger.actions import as_json, storable
from trainmon.lib import Instant
from trainmon.model import KEPT_RESOLVED, Alert, AlertChanges, AlertRequest, Recalled, Silence

log = logging.getLogger(__name__)

ALERTS_AT_MOST = 20_000
SILENCES_AT_MOST = 2_000
ORDERS_AT_ONCE = 200
RESOLVED_AT_MOST = 20_000
LINES_AT_MOST = 200_000
"""What is over is forgotten by its number, too: a subject that flaps for a month makes an alert a minute."""
ORDERS_UNTIL = "orders_until"
"""In the memory, the number of the last order that was carried out."""

ALERT_COLUMNS = (
    "id", "rule", "subject", "severity", "phase", "data", "summary", "cluster", "run", "node", "since", "fired_at",
    "resolved_at", "acknowledged_by", "muted_until",
)  # fmt: skip
SILENCE_COLUMNS = ("id", "rule", "subject", "run", "node", "until", "by", "why", "made_at", "ended_at")
ORDER_COLUMNS = ("at", "verb", "by", "alert", "why", "via")

Value = str | float | int | None
Kept = TypeVar("Kept", Alert, Silence, AlertRequest)


class Happening(NamedTuple):
    """One line of the history of an alert."""

    at: Instant
    alert_id: str
    what: str
    words: str


def put(table: str, columns: Iterable[str]) -> str:
    """Write a row, in place of the one with the same name."""
    names = [f'"{name}"' for name in columns]
    return f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


PUT_ALERT = put("alerts", (*ALERT_COLUMNS, "written_at", "alert"))
PUT_SILENCE = put("silences", (*SILENCE_COLUMNS, "silence"))
PUT_ORDER = put("orders", ("number", *ORDER_COLUMNS, "order"))


def fields(value: object, columns: Iterable[str]) -> list[Value]:
    """Some of a value's fields, fit for a row."""
    found = (getattr(value, name) for name in columns)
    return [storable(field) if isinstance(field, str) else field for field in found]


def write_changes(connection: sqlite3.Connection, changes: AlertChanges) -> None:
    """Alerts, silences and the memory; notices and the history have rows of their own."""
    rows = ([*fields(alert, ALERT_COLUMNS), changes.at, as_json(alert)] for alert in changes.alerts)
    connection.executemany(PUT_ALERT, rows)
    connection.executemany(
        PUT_SILENCE, ([*fields(silence, SILENCE_COLUMNS), as_json(silence)] for silence in changes.silences)
    )
    memory = dict(changes.memory)
    if changes.orders_until is not None:
        memory[ORDERS_UNTIL] = str(changes.orders_until)
    connection.executemany(
        "INSERT OR REPLACE INTO memory (name, value) VALUES (?, ?)",
        ((storable(name), storable(value)) for name, value in memory.items()),
    )


def add_history(connection: sqlite3.Connection, lines: Iterable[Happening]) -> None:
    connection.executemany(
        "INSERT INTO alert_history (at, alert_id, what, words) VALUES (?, ?, ?, ?)",
        ((line.at, line.alert_id, line.what, storable(line.words)) for line in lines),
    )


def add_order(connection: sqlite3.Connection, order: AlertRequest) -> int:
    """Leave an order for whoever has the duty; its number. Numbers grow, in a ledger that is begun anew (the old one
    was removed, or a copy put in its place) as well: whoever has the duty carries out what is beyond the last."""
    (last,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'orders'").fetchone()
    number = max((last or 0) + 1, int(order.at * 1000))
    connection.execute(PUT_ORDER, [number, *fields(order, ORDER_COLUMNS), as_json(order)])
    return number


def read_orders(connection: sqlite3.Connection, after: int) -> list[tuple[int, AlertRequest]]:
    """The orders that came after that one, the oldest first."""
    query = 'SELECT number, "order" FROM orders WHERE number > ? ORDER BY number LIMIT ?'
    rows = connection.execute(query, (after, ORDERS_AT_ONCE)).fetchall()
    found = ((number, decoded(text, AlertRequest, f"order {number}")) for number, text in rows)
    return [(number, order) for number, order in found if order is not None]


def read_recalled(connection: sqlite3.Connection, now: Instant) -> Recalled:
    """What was known of alerts when it was last written down."""
    query = (
        "SELECT id, alert FROM alerts WHERE phase != 'resolved' OR resolved_at > ? "
        "ORDER BY phase = 'resolved', since DESC LIMIT ?"
    )
    alerts = connection.execute(query, (now - KEPT_RESOLVED, ALERTS_AT_MOST)).fetchall()
    query = "SELECT id, silence FROM silences WHERE until > ? AND ended_at IS NULL ORDER BY made_at DESC LIMIT ?"
    silences = connection.execute(query, (now, SILENCES_AT_MOST)).fetchall()
    memory = dict(connection.execute("SELECT name, value FROM memory").fetchall())
    until = memory.pop(ORDERS_UNTIL, "0")
    return Recalled(
        alerts=_all(alerts, Alert),
        silences=_all(silences, Silence),
        orders_until=int(until) if until.isdecimal() else 0,
        memory=memory,
        at=_last_written(connection),
    )


def read_history(connection: sqlite3.Connection, since: Instant, limit: int) -> list[Happening]:
    """What happened to alerts since then: the newest `limit`, the newest last."""
    query = "SELECT at, alert_id, what, words FROM alert_history WHERE at >= ? ORDER BY number DESC LIMIT ?"
    return [Happening(*row) for row in connection.execute(query, (since, limit))][::-1]


def prune_alerts(
    connection: sqlite3.Connection, before: Instant, resolved: int = RESOLVED_AT_MOST, lines: int = LINES_AT_MOST
) -> None:
    """Forget what is over and older than that, or more than there is room for."""
    connection.execute("DELETE FROM alerts WHERE phase = 'resolved' AND coalesce(resolved_at, since) < ?", (before,))
    connection.execute(
        "DELETE FROM alerts WHERE rowid IN (SELECT rowid FROM alerts WHERE phase = 'resolved' "
        "ORDER BY coalesce(resolved_at, since) DESC LIMIT -1 OFFSET ?)",
        (resolved,),
    )
    connection.execute("DELETE FROM alert_history WHERE at < ?", (before,))
    connection.execute(
        "DELETE FROM alert_history WHERE number <= (SELECT max(number) FROM alert_history) - ?", (lines,)
    )
    connection.execute("DELETE FROM silences WHERE coalesce(ended_at, until) < ?", (before,))
    connection.execute("DELETE FROM orders WHERE at < ?", (before,))


def decoded(text: str, kind: type[Kept], what: str) -> Kept | None:
    """A value as it was written; one of another version is told and left."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        log.warning("the ledger's %s is of another version: %s", what, error)
        return None


def _all(rows: Iterable[tuple[str, str]], kind: type[Kept]) -> tuple[Kept, ...]:
    found = (decoded(text, kind, f"{kind.__name__.lower()} {name}") for name, text in rows)
    return tuple(value for value in found if value is not None)


def _last_written(connection: sqlite3.Connection) -> Instant | None:
    written, ticked = connection.execute(
        "SELECT (SELECT max(written_at) FROM alerts), (SELECT max(last_tick_at) FROM duty)"
    ).fetchone()
    return max((at for at in (written, ticked) if at is not None), default=None)
