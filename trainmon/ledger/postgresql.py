"""Copies attempts, actions and evals from the ledger to a team's PostgreSQL, on a thread of its own. Nothing waits for
it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from trainmon.ledger import actions, attempts
from trainmon.ledger.attempts import timestamp
from trainmon.ledger.database import NAME, open_to_read
from trainmon.ledger.schema import VERSION, version_of
from trainmon.lib import MASK, Clock, Instant, Seconds, clean, scrub
from trainmon.lib.threads import Background

log = logging.getLogger(__name__)

EVERY: Seconds = 30.0
PAUSES: tuple[Seconds, ...] = (1.0, 5.0, 15.0, 60.0, 300.0)
"""After one failure, after two … The last one repeats."""
CONNECT_TIMEOUT = 10
STATEMENT_TIMEOUT = "30s"
OVERLAP: Seconds = 60.0
"""Rows that were written this long before the last copy are copied again: another program may commit late."""

TYPES = {"INTEGER": "bigint", "REAL": "double precision"}
"""The types of the ledger's columns, as PostgreSQL calls them."""
TIMESTAMPS = (*attempts.TIMES, "written_at")
JSON = (*attempts.LISTED, *attempts.EVAL_LISTED)
"""Columns that are text in the ledger, and more than that in PostgreSQL."""


class Copied(NamedTuple):
    """A table of the ledger: its key, the columns that are copied, what was changed since a time, and which of two
    rows with one key stays."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    changed: str
    replaces: str


TABLES = (
    Copied(
        "training_attempts", ("attempt_id",), attempts.COLUMNS, "written_at >= ?",
        "excluded.ended_at IS NOT NULL OR training_attempts.ended_at IS NULL",
    ),
    Copied(
        "actions", ("id",), tuple(name for name in actions.COLUMNS if name != "record"),
        "settled_at IS NULL OR strftime('%Y-%m-%d %H:%M:%f', settled_at, 'unixepoch') >= ?",
        "excluded.settled_at IS NOT NULL OR actions.settled_at IS NULL",
    ),
    Copied("evals", ("run_id", "digest"), attempts.EVAL_COLUMNS, "written_at >= ?", "true"),
)  # fmt: skip
"""The key of an attempt has its cluster, job, restart and submit time. A row that has ended is not replaced by one of
another ledger that has not."""


def is_address(url: str) -> bool:
    """Whether it is the address of a PostgreSQL server."""
    return url.startswith(("postgresql://", "postgres://"))


def connection_error(url: str) -> str | None:
    """Why the server cannot be used now, without the secrets of its address; None when it can."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT).close()
    except psycopg.Error as error:
        return without_secrets(error, url)
    return None


def without_secrets(error: Exception, url: str) -> str:
    """The first line of an error, without the secrets of the address."""
    text = str(error).strip().partition("\n")[0]
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return f"{type(error).__name__}: {clean(scrub(text), 300)}"


class PostgresCopy(Background):
    """Copies what has changed, every half minute. A server that is away is tried again, at last every five minutes. At
    the end, a copy that hangs is not waited for."""

    stop_timeout = 0.0

    def __init__(self, directory: Path, url: str, clock: Clock, every: Seconds = EVERY) -> None:
        self._file = directory / NAME
        self._url = url
        self._clock = clock
        self._every = every
        self._copied_until: Instant | None = None
        """None: nothing was copied since the start, so everything is."""
        self._failures = 0
        super().__init__("postgresql")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.copy()
            except Exception as error:  # whatever it is: the next try may work
                if not self._failures:
                    log.warning("the ledger is not copied to PostgreSQL: %s", without_secrets(error, self._url))
                self._failures += 1
            else:
                if self._failures:
                    log.info("the ledger is copied to PostgreSQL again")
                self._failures = 0
            self._stopping.wait(PAUSES[min(self._failures, len(PAUSES)) - 1] if self._failures else self._every)

    def copy(self) -> None:
        """Copy what has changed since the last time.

        Raises: psycopg.Error, sqlite3.Error, OSError.
        """
        import psycopg

        now = self._clock.now()
        local = open_to_read(self._file)
        if local is None:
            return
        since = timestamp(0.0 if self._copied_until is None else self._copied_until - OVERLAP)
        with closing(local):
            if version_of(local) < VERSION:
                return  # the ledger's own thread is about to migrate it
            types = {table: _types(local, table) for table in TABLES}
            changed = {table: _rows(local, table, since or "") for table in TABLES}
        if not any(changed.values()) and self._copied_until is not None:
            self._copied_until = now
            return
        options = f"-c statement_timeout={STATEMENT_TIMEOUT}"
        with psycopg.connect(self._url, connect_timeout=CONNECT_TIMEOUT, options=options) as remote:
            for table, rows in changed.items():
                if self._copied_until is None:
                    for statement in definition(table, types[table]):
                        remote.execute(statement.encode())
                if rows:
                    remote.cursor().executemany(upsert(table).encode(), rows)
        self._copied_until = now


def definition(table: Copied, types: Mapping[str, str]) -> list[str]:
    """The statements that create the table, or add the columns that an earlier version lacked."""
    keys = ", ".join(f'"{name}" {types[name]}' for name in table.key)
    return [
        f"CREATE TABLE IF NOT EXISTS {table.name} ({keys}, PRIMARY KEY ({', '.join(table.key)}))",
        *(
            f'ALTER TABLE {table.name} ADD COLUMN IF NOT EXISTS "{name}" {types[name]}'
            for name in table.columns
            if name not in table.key
        ),
    ]


def upsert(table: Copied) -> str:
    """The statement that writes a row, or replaces the one with its key."""
    names = [f'"{name}"' for name in table.columns]
    values = ", ".join(f'"{name}" = excluded."{name}"' for name in table.columns if name not in table.key)
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {values} WHERE {table.replaces}"
    )


def _types(connection: sqlite3.Connection, table: Copied) -> dict[str, str]:
    """PostgreSQL's types of the columns of a table of the ledger."""
    found = {
        name: TYPES.get(kind, "text") for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table.name})")
    }
    found |= {name: "timestamptz" for name in TIMESTAMPS if name in found}
    return found | {name: "jsonb" for name in JSON if name in found}


def _rows(connection: sqlite3.Connection, table: Copied, since: str) -> list[tuple[Any, ...]]:
    names = ", ".join(table.columns)
    found = connection.execute(f"SELECT {names} FROM {table.name} WHERE {table.changed}", (since,))
    return [tuple(_storable(value) for value in row) for row in found]


def _storable(value: Any) -> Any:
    """PostgreSQL stores no NUL in a text, escaped in JSON neither."""
    return value.replace("\x00", "").replace("\\u0000", "") if isinstance(value, str) else value


def _secrets(url: str) -> set[str]:
    """What must not be shown of an address."""
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        password = ""
    return {text for text in (url, password, unquote(password)) if text}
