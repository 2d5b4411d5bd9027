"""The outbox: what is to be told, by which channel, and what came of it. A row is one notice for one channel."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.ledger.actions import as_json, storable
from trainmon.lib import Instant, Seconds
from trainmon.model import Notice, Notification, Severity

log = logging.getLogger(__name__)

LetterState = Literal["waiting", "leased", "sent", "dead", "merged", "stopped"]
Address = tuple[str, str]
"""A notice's key and a channel: what a row is known by."""

LETTERS_AT_MOST = 10_000
"""Read at once for one channel."""
TOLD_AT_MOST = 50_000
"""So many are kept that were told, or given up."""


class Extra(NamedTuple):
    """A letter besides those that a notice names: `channel` is told what another could not deliver."""

    notice: Notice
    channel: str
    because: str


class Mark(NamedTuple):
    """What became of a letter."""

    key: str
    channel: str
    state: LetterState
    at: Instant
    attempts: int
    next_at: Instant
    sent_at: Instant | None = None
    words: str | None = None
    notice: Notice | None = None
    """What it tells: where the ledger has no such letter (it was removed, or a copy put in its place), it gets one."""

    @property
    def address(self) -> Address:
        return self.key, self.channel


def write_notices(
    connection: sqlite3.Connection, notices: Iterable[Notice], extras: Iterable[Extra], at: Instant
) -> frozenset[Address]:
    """Make their rows; which of them are new. The same notice is never twice in the outbox of one channel."""
    made = set()
    for notice in notices:
        _write_notice(connection, notice)
        for channel in notice.channels:
            if _make(connection, notice.key, channel, at, None):
                made.add((notice.key, channel))
    for extra in extras:
        _write_notice(connection, extra.notice)
        if _make(connection, extra.notice.key, extra.channel, at, extra.because):
            made.add((extra.notice.key, extra.channel))
    return frozenset(made)


def _write_notice(connection: sqlite3.Connection, notice: Notice) -> None:
    about = " ".join(alert.id for alert in notice.alerts)
    values = (notice.key, notice.kind, notice.severity, notice.at, storable(notice.reason), about, as_json(notice))
    names = "key, kind, severity, at, reason, alerts, notice"
    # Not OR IGNORE: that would also pass over a notice that is wrong, and leave its letters without words.
    connection.execute(
        f"INSERT INTO notices ({names}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING", values
    )


def _make(connection: sqlite3.Connection, key: str, channel: str, at: Instant, because: str | None) -> bool:
    names = "key, channel, state, attempts, made_at, next_at, changed_at, because"
    cursor = connection.execute(
        f"INSERT INTO outbox ({names}) VALUES (?, ?, 'waiting', 0, ?, ?, ?, ?) ON CONFLICT (key, channel) DO NOTHING",
        (key, channel, at, at, at, because and storable(because)),
    )
    return cursor.rowcount > 0


def write_marks(connection: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    query = (
        "UPDATE outbox SET state = ?, attempts = ?, next_at = ?, sent_at = ?, words = ?, changed_at = ? "
        "WHERE key = ? AND channel = ?"
    )
    for mark in marks:
        values = (
            mark.state, mark.attempts, mark.next_at, mark.sent_at, mark.words and storable(mark.words), mark.at,
            mark.key, mark.channel,
        )  # fmt: skip
        if connection.execute(query, values).rowcount == 0 and mark.notice is not None:
            _write_notice(connection, mark.notice)
            _make(connection, mark.key, mark.channel, mark.at, None)
            connection.execute(query, values)


STAND_INS = (
    "FROM outbox AS other WHERE other.key = outbox.key AND outbox.because IS NULL "
    "AND other.because IS NOT NULL AND other.state IN ('sent', 'merged')"
)
"""Those that have delivered it in place of a channel that was down."""
COLUMNS = (
    "outbox.id, channel, outbox.state, attempts, next_at, made_at, sent_at, words, "
    f"(SELECT group_concat(other.channel, char(10)) {STAND_INS}), "
    "because, notice, notices.key, notices.severity, notices.at, notices.reason"
)
FROM = "FROM outbox JOIN notices ON notices.key = outbox.key"


def take_over(connection: sqlite3.Connection, now: Instant) -> list[Notification]:
    """What waits, the oldest first. What a program that is gone was just sending waits again: it may or may not have
    arrived. So does what was given up, where nobody was told by any channel; a clock that jumped makes nothing too old
    for that."""
    connection.execute("UPDATE outbox SET state = 'waiting', changed_at = ? WHERE state = 'leased'", (now,))
    connection.execute(
        "UPDATE outbox SET state = 'waiting', changed_at = ? WHERE state = 'dead' AND NOT EXISTS "
        "(SELECT 1 FROM outbox AS other WHERE other.key = outbox.key AND other.state IN ('sent', 'merged'))",
        (now,),
    )
    return read_waiting(connection)


def read_waiting(connection: sqlite3.Connection) -> list[Notification]:
    """What waits: the oldest for each channel, but not more than it can hold."""
    channels = connection.execute("SELECT DISTINCT channel FROM outbox WHERE state IN ('waiting', 'leased')").fetchall()
    query = f"SELECT {COLUMNS} {FROM} WHERE channel = ? AND state IN ('waiting', 'leased') ORDER BY outbox.id LIMIT ?"
    return [
        letter for (channel,) in channels for letter in _letters(connection.execute(query, (channel, LETTERS_AT_MOST)))
    ]


def read_overdue(connection: sqlite3.Connection, now: Instant, age: Seconds) -> list[Notification]:
    """What waits, and of which nothing was written down for a while: once more, whoever has it."""
    query = "SELECT 1 FROM outbox WHERE state IN ('waiting', 'leased') AND abs(changed_at - ?) > ?"
    return read_waiting(connection) if connection.execute(query, (now, age)).fetchone() else []


def read_newest(connection: sqlite3.Connection, since: Instant, limit: int) -> list[Notification]:
    """What waits or was told since then: the newest `limit`, the newest last."""
    query = f"SELECT {COLUMNS} {FROM} WHERE outbox.changed_at >= ? ORDER BY outbox.id DESC LIMIT ?"
    return _letters(connection.execute(query, (since, limit)))[::-1]


class Counts(NamedTuple):
    """The outbox in numbers."""

    waiting: int = 0
    oldest_at: Instant | None = None
    dead: int = 0
    """Given up within the time asked for."""


def count(connection: sqlite3.Connection, since: Instant) -> Counts:
    """How much waits now that no channel has delivered yet, and how much was given up since then."""
    waiting, oldest = connection.execute(
        "SELECT count(*), min(made_at) FROM outbox WHERE state IN ('waiting', 'leased') "
        f"AND NOT EXISTS (SELECT 1 {STAND_INS})"
    ).fetchone()
    (dead,) = connection.execute(
        "SELECT count(*) FROM outbox WHERE state = 'dead' AND made_at > ?", (since,)
    ).fetchone()
    return Counts(waiting, oldest, dead)


def _letters(rows: Iterable[tuple[object, ...]]) -> list[Notification]:
    found = []
    for row in rows:
        *plain, told_by, because, text, key, severity, at, reason = row
        try:
            notice = msgspec.json.decode(str(text), type=Notice)
        except msgspec.DecodeError as error:
            log.warning("the outbox's row %s is of another version: %s", plain[0], error)
            notice = _in_short(key, severity, at, reason, channel=str(plain[1]))
        names = ("id", "channel", "state", "attempts", "next_at", "made_at", "sent_at", "words")
        told = notice if because is None else told_for(notice, str(because))
        by = tuple(str(told_by).split("\n")) if told_by is not None else ()
        found.append(
            msgspec.convert({**dict(zip(names, plain, strict=True)), "notice": told, "told_by": by}, Notification)
        )
    return found


def _in_short(key: object, severity: object, at: object, reason: object, *, channel: str) -> Notice:
    """What can be told of a notice that another version of this program wrote: rather little than nothing."""
    about = str(severity)
    known: Severity = "info" if about == "info" else "warning" if about == "warning" else "critical"
    return Notice(
        key=str(key),
        kind="direct",
        reason=str(reason),
        severity=known,
        at=float(str(at)),
        channels=(channel,),
        title="An alert in words of another version",
        lines=(
            f"{key}: {reason}",
            "Another version of this program wrote it into the ledger, and it was not told yet.",
            "`trainmon-tui status` lists what is wrong now.",
        ),
    )


def told_for(notice: Notice, because: str) -> Notice:
    """A notice as a channel tells it that was not meant first."""
    return replace(notice, reason=f"{notice.reason}; {because}" if notice.reason else because)


def prune_outbox(connection: sqlite3.Connection, before: Instant, told: int = TOLD_AT_MOST) -> None:
    """Forget what was told (or given up) before that, or is more than there is room for. What waits is kept, however
    old."""
    connection.execute("DELETE FROM outbox WHERE made_at < ? AND state NOT IN ('waiting', 'leased')", (before,))
    connection.execute(
        "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE state NOT IN ('waiting', 'leased') "
        "ORDER BY id DESC LIMIT -1 OFFSET ?)",
        (told,),
    )
    connection.execute(
        "DELETE FROM notices WHERE (at < ? OR rowid <= (SELECT max(rowid) FROM notices) - ?) "
        "AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.key = notices.key)",
        (before, told),
    )
