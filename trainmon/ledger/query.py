"""Runs a person's query on the ledger: it can only read, and it cannot take long or use much memory."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any, NamedTuple

from trainmon.ledger.database import NAME, describe, open_to_read
from trainmon.lib import Seconds, TrainmonError

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
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").lower() not in REFUSED_FUNCTIONS
    else:
        allowed = action in ALLOWED
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
