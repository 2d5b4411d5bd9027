"""Reads the ledger of another program by its directory, and sends requests to the leader. Runs a person's query."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.analysis.explanation import AttemptRecords
from trainmon.analysis.retries import KEPT
from trainmon.ledger.actions import ActionText, read_actions, read_texts
from trainmon.ledger.alerts import (
    Counts,
    HistoryLine,
    add_request,
    count,
    read_history,
    read_newest,
    read_node_events,
    read_sent,
    read_stored_alerts,
    read_totals,
    take_over,
)
from trainmon.ledger.attempts import (
    AttemptName,
    read_around,
    read_attempts,
    read_names,
    read_recent,
    read_rows,
    read_uses,
)
from trainmon.ledger.database import NAME, LedgerStuck, describe, open_to_read, open_to_write
from trainmon.ledger.lease import LOCK, LeaderNote, LeaderNow, is_locked, is_row_held, read_note, this_program
from trainmon.ledger.schema import NewerLedger, version_of
from trainmon.lib import DAY, Instant, Seconds, TrainmonError, by_key
from trainmon.model import (
    AlertRequest,
    Attempt,
    Channel,
    Delivery,
    NodeEvent,
    NodeUse,
    Notification,
    Record,
    StoredAlerts,
)

SINCE_ATTEMPTS = 3
SINCE_ALERTS = 2
"""The versions of the ledger that first had attempts, and alerts."""
NOTIFICATIONS_AT_MOST = 1_000

Found = TypeVar("Found")


class AlertsNow(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of alerting in the ledger."""

    stored: StoredAlerts = StoredAlerts()
    notifications: tuple[Notification, ...] = ()
    """The newest of the last day, the newest last."""
    channels: tuple[Channel, ...] = ()
    sent: Mapping[str, tuple[Instant, ...]] = {}
    """When each channel sent a message in the last day. Only a program that begins to lead reads this."""
    outbox: Counts = Counts()
    leader: LeaderNow | None = None
    is_locked: bool = False
    """Whether a program has the lock beside the ledger. It may have written nothing to the ledger yet."""


def recent_actions(directory: Path, since: Instant, limit: int) -> list[Record]:
    """The newest actions of a ledger, the newest last.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_actions(connection, since, limit), [], since_version=1)


def attempt_rows(directory: Path, since: Instant, run: str | None, limit: int) -> list[dict[str, Any]]:
    """The rows of the attempts that ran since then, the newest last.

    Raises: LedgerStuck.
    """
    return query_ledger(
        directory, partial(read_rows, since=since, run=run, limit=limit), [], since_version=SINCE_ATTEMPTS
    )


def recent_attempts(directory: Path, since: Instant, limit: int) -> list[Attempt]:
    """The open attempts, and those that ended since then.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, partial(read_recent, since=since, limit=limit), [], since_version=SINCE_ATTEMPTS)


def node_history(directory: Path, until: Instant) -> tuple[list[NodeUse], list[NodeEvent]]:
    """The newest attempts until then, as they count for their nodes; and what alerts say of nodes, the oldest first.

    Raises: LedgerStuck.
    """
    nothing: tuple[list[NodeUse], list[NodeEvent]] = ([], [])
    return query_ledger(
        directory,
        lambda connection: (read_uses(connection, until), read_node_events(connection, until - KEPT)),
        nothing,
        since_version=SINCE_ATTEMPTS,
    )


def attempt_history(directory: Path) -> list[Attempt]:
    """All attempts of a ledger; of their last lines only whether there are any, where that counts.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, read_attempts, [], since_version=SINCE_ATTEMPTS)


def attempt_names(directory: Path, limit: int) -> list[AttemptName]:
    """The names of the newest attempts, the newest first.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_names(connection, limit), [], since_version=SINCE_ATTEMPTS)


def attempt_records(directory: Path, attempt_id: str) -> tuple[Attempt, AttemptRecords] | None:
    """An attempt, and what the ledger knows around it.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, partial(read_around, attempt_id=attempt_id), None, since_version=SINCE_ATTEMPTS)


def action_texts(directory: Path, action_id: str) -> list[ActionText]:
    """The texts that belong to an action.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_texts(connection, action_id), [], since_version=1)


def alerts_now(directory: Path, now: Instant) -> AlertsNow:
    """Alerts, notifications, channels and the leader.

    Raises: LedgerStuck.
    """
    found = query_ledger(directory, lambda connection: read_all(connection, now), AlertsNow())
    found = replace(found, is_locked=is_locked(directory))
    return found if found.leader is None else replace(found, leader=_leader(directory, found.leader.note, now))


def leader_now(directory: Path, now: Instant) -> LeaderNow | None:
    """What the program that leads, or led last, has written about itself.

    Raises: LedgerStuck.
    """
    note = query_ledger(directory, read_note, None)
    return None if note is None else _leader(directory, note, now)


def _leader(directory: Path, note: LeaderNote, now: Instant) -> LeaderNow:
    is_held = is_locked(directory) if (directory / LOCK).exists() else is_row_held(note, this_program(), now)
    return LeaderNow(note=note, is_held=is_held)


def alert_history(directory: Path, since: Instant, limit: int) -> list[HistoryLine]:
    """The history of alerts since then, the newest last.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_history(connection, since, limit), [])


def totals(directory: Path, now: Instant) -> dict[str, dict[str, float]]:
    """The totals of a ledger, as `read_totals` returns them.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, partial(read_totals, now=now), {}, since_version=SINCE_ATTEMPTS)


def submit_request(directory: Path, request: AlertRequest) -> int:
    """Write a request for the leader and return its number. The leader has carried it out when
    `alerts_now(…).stored.requests_until` reaches that number.

    Raises: LedgerStuck.
    """
    file = directory / NAME
    try:
        with closing(open_to_write(file, is_network=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            number = add_request(connection, request)
            connection.execute("COMMIT")
            return number
    except (sqlite3.Error, OSError, NewerLedger) as error:
        raise LedgerStuck(describe(error, file)) from error


def query_ledger(
    directory: Path,
    work: Callable[[sqlite3.Connection], Found],
    nothing: Found,
    *,
    since_version: int = SINCE_ALERTS,
) -> Found:
    """Query a ledger, also while another program writes. Return `nothing` if there is no ledger, or if its version is
    older than `since_version`.

    Raises: LedgerStuck.
    """
    file = directory / NAME
    try:
        connection = open_to_read(file)
        if connection is None:
            return nothing
        with closing(connection):
            return work(connection) if version_of(connection) >= since_version else nothing
    except (sqlite3.Error, OSError) as error:
        raise LedgerStuck(describe(error, file)) from error


def read_all(connection: sqlite3.Connection, now: Instant) -> AlertsNow:
    """The same from an open ledger. Of the leader it has only the note."""
    notifications = tuple(read_newest(connection, now - DAY, NOTIFICATIONS_AT_MOST))
    stored = read_stored_alerts(connection, now)
    told = by_key((alert.id, (one.channel, delivery(one))) for one in notifications for alert in one.notice.alerts)
    newest = {alert: tuple(dict(deliveries).values()) for alert, deliveries in told.items()}
    alerts = (replace(one, delivery=newest.get(one.id, one.delivery)) for one in stored.alerts)
    note = read_note(connection)
    return AlertsNow(
        stored=replace(stored, alerts=tuple(alerts)),
        notifications=notifications,
        channels=tuple(_as_sent(one, notifications) for one in note.channels) if note is not None else (),
        outbox=count(connection, now - DAY),
        leader=None if note is None else LeaderNow(note=note, is_held=True),
    )


def _as_sent(channel: Channel, notifications: Sequence[Notification]) -> Channel:
    """The channel with what the outbox knows: its leader wrote the health a while ago, or has ended since."""
    sent = [one.sent_at for one in notifications if one.channel == channel.name and one.sent_at is not None]
    if not sent or (channel.sent_at is not None and channel.sent_at >= max(sent)):
        return channel
    return replace(channel, sent_at=max(sent), state="ok" if channel.state == "unknown" else channel.state)


def remember(connection: sqlite3.Connection, now: Instant) -> AlertsNow:
    """What a program that begins to lead must know: alerts, channels, and the notifications that it sends."""
    notifications = tuple(take_over(connection, now))
    note = read_note(connection)
    channels = note.channels if note is not None else ()
    return AlertsNow(
        stored=read_stored_alerts(connection, now),
        notifications=notifications,
        channels=channels,
        sent=read_sent(connection, now - DAY, now),
    )


def delivery(notification: Notification) -> Delivery:
    """The state of a notification, as its alerts show it."""
    is_retry = notification.state == "waiting" and notification.attempts > 0
    return Delivery(
        channel=notification.channel,
        kind=notification.notice.kind,
        state="sending" if notification.state == "leased" else "retrying" if is_retry else notification.state,
        at=notification.sent_at if notification.sent_at is not None else notification.made_at,
        answer=notification.answer,
    )


# ---- a person's query: it can only read, and it cannot take long or use much memory ----------------------------------

TIME_LIMIT: Seconds = 10.0
ROWS_AT_MOST = 10_000
VALUE_AT_MOST = 1_000_000
"""Bytes of one text or blob: zeroblob(1e9) is refused."""
ANSWER_AT_MOST = 64 * 1024 * 1024
"""Bytes of the whole answer."""
MEMORY_AT_MOST = 256 * 1024 * 1024
CHECK_EVERY = 10_000
"""Instructions of SQLite's machine between two looks at the clock."""

ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "printf", "format"}
"""printf('%999999999d', 1) takes seconds in one call, which nothing can interrupt; round() is enough for tables."""

NOW = "strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now'{})"
"""The present as the ledger stores times, in SQLite's words."""
TOKENS = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)"""
    r"|\b(?:now\s*\(\s*\)|current_timestamp\b)"
    r"(?:\s*(?P<sign>[-+])\s*interval\s*'\s*(?P<number>\d{1,9})\s*(?P<unit>second|minute|hour|day|week|month|year)s?\s*')?",
    re.IGNORECASE | re.DOTALL,
)


NAMES = "the tables training_attempts, evals and gpu_hours; `select * from TABLE limit 1` with --json shows columns"


class QueryRefused(TrainmonError):
    """A query that is wrong, that may not be run, or that exceeds a limit."""


class Table(NamedTuple):
    """The answer of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def for_sqlite(query: str) -> str:
    """The query with `now()` and `now() - interval '7 days'` in SQLite's words. Texts and comments stay as they are."""

    def replaced(found: re.Match[str]) -> str:
        if found["quoted"] is not None:
            return found[0]
        if found["unit"] is None:
            return NOW.format("")
        number, unit = int(found["number"]), found["unit"].lower()
        if unit == "week":
            number, unit = 7 * number, "day"
        return NOW.format(f", '{found['sign']}{number} {unit}s'")

    return TOKENS.sub(replaced, query)


def select(directory: Path, query: str, limit: Seconds = TIME_LIMIT) -> Table:
    """The answer of a query on the ledger of this directory.

    Raises: QueryRefused.
    """
    file = directory / NAME
    try:
        connection = open_to_read(file)
    except (sqlite3.Error, OSError) as error:
        raise QueryRefused(describe(error, file)) from error
    if connection is None:
        raise QueryRefused(
            f"there is no ledger {file} yet", hint="start trainmon-tui; it writes the attempts of its runs"
        )
    try:
        _confine(connection, time.monotonic() + limit)
        return _read(connection, for_sqlite(query))
    except sqlite3.Error as error:
        hint = NAMES if str(error).startswith("no such ") else ""
        raise QueryRefused(_sentence(error, limit), hint=hint) from error
    except sqlite3.Warning as error:  # several statements, in Python 3.11
        raise QueryRefused("one query at a time: there is text after its semicolon") from error
    except MemoryError as error:
        raise QueryRefused(f"the query needs more than {MEMORY_AT_MOST >> 20} MiB of memory") from error
    finally:
        connection.close()


def _confine(connection: sqlite3.Connection, deadline: float) -> None:
    """Permit reading only. `mode=ro` alone still attaches other files, and creates them."""
    connection.execute(f"PRAGMA hard_heap_limit = {MEMORY_AT_MOST}")
    connection.execute("PRAGMA temp_store = MEMORY")  # large sorts are in the limited memory, not on a disk
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_AT_MOST)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, CHECK_EVERY)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    is_function = action == sqlite3.SQLITE_FUNCTION
    allowed = (second or "").lower() not in REFUSED_FUNCTIONS if is_function else action in ALLOWED
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _read(connection: sqlite3.Connection, query: str) -> Table:
    cursor = connection.execute(query)
    if cursor.description is None:
        raise QueryRefused("only SELECT is permitted")
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if len(rows) == ROWS_AT_MOST:
            raise QueryRefused(f"the answer has more than {ROWS_AT_MOST:,} rows", hint="add a LIMIT, or count them")
        if size > ANSWER_AT_MOST:
            raise QueryRefused(f"the answer is larger than {ANSWER_AT_MOST >> 20} MiB", hint="select fewer columns")
        rows.append(row)
    return Table(tuple(column[0] for column in cursor.description), rows)


def _sentence(error: sqlite3.Error, limit: Seconds) -> str:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name == "SQLITE_INTERRUPT":
        return f"the query was stopped after {limit:g}s"
    if name.startswith("SQLITE_AUTH") or any(
        word in str(error) for word in ("not authorized", "prohibited", "is a view")
    ):
        return f"only SELECT is permitted: {error}"
    if "one statement at a time" in str(error):
        return "one query at a time: there is text after its semicolon"
    return f"SQLite: {error}"
