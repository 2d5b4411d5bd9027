"""Records and kept texts as rows of the ledger, and back."""

from __future__ import annotations

import json
import logging
import shlex
import sqlite3
from collections.abc import Iterable

import msgspec

from trainmon.lib import Instant, clean, scrub
from trainmon.model import CreateFile, Execute, Operation, Record

log = logging.getLogger(__name__)

TEXT_AT_MOST = 256 * 1024
"""Characters kept of one text, its end: the last thousand lines of a log."""

COLUMNS = (
    "id", "asked_at", "who", "from_host", "verb", "subject", "run", "job", "cluster", "host", "title", "command", "why",
    "status", "done_at", "outcome", "settled_at", "note", "record",
)  # fmt: skip

RANK = "CASE {}.status WHEN 'asked' THEN 0 WHEN 'unknown' THEN 1 ELSE 2 END"
"""Two programs may follow one action: what one knows to be done, another does not make unknown, or open again."""
WRITE = f"""
    INSERT INTO actions ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
    ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])}
    WHERE {RANK.format("excluded")} > {RANK.format("actions")}
    OR ({RANK.format("excluded")} = {RANK.format("actions")}
        AND (actions.settled_at IS NULL OR excluded.settled_at IS NOT NULL))
"""
WRITE_TEXT = """
    INSERT OR REPLACE INTO action_texts (action_id, kind, host, path, at, text) VALUES (?, ?, ?, ?, ?, ?)
"""


class KeptText(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text that belongs to an action, such as the end of the log before a requeue."""

    action_id: str
    kind: str
    host: str
    path: str
    at: Instant
    text: str


def harmless(text: str) -> str:
    """The end of a text, its secrets masked and its lines fit to be shown, no longer than is kept."""
    lines = scrub(text[-TEXT_AT_MOST:]).splitlines()
    return "\n".join(map(clean, lines))[-TEXT_AT_MOST:]


def shown(operation: Operation) -> str:
    """What is done, as a person would write it in a shell."""
    if isinstance(operation, Execute):
        return clean(scrub(operation.shown or shlex.join(operation.argv)))
    verb = "create" if isinstance(operation, CreateFile) else "rm"
    return clean(f"{verb} {shlex.quote(operation.path)}")


def write_all(connection: sqlite3.Connection, records: Iterable[Record], texts: Iterable[KeptText]) -> None:
    """Put records and texts into their tables, the newest of each in place of the one before."""
    connection.executemany(WRITE, map(_row, records))
    connection.executemany(WRITE_TEXT, (_text_row(text) for text in texts))


def _row(record: Record) -> tuple[str | float | None, ...]:
    action = record.action
    values = (
        action.id, action.asked_at, action.who, action.from_host, action.verb, action.subject, action.run, action.job,
        action.cluster, action.host, action.title, shown(action.operation), action.why,
        record.status, record.done_at, record.outcome, record.settled_at, record.note,
        as_json(record),
    )  # fmt: skip
    return tuple(storable(value) if isinstance(value, str) else value for value in values)


def as_json(value: object) -> str:
    """A whole value, to be read again by its type."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # lone surrogates somewhere in it
        return storable(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def _text_row(kept: KeptText) -> tuple[str | float, ...]:
    return (kept.action_id, kept.kind, kept.host, storable(kept.path), kept.at, storable(kept.text))


def storable(text: str) -> str:
    """A path may hold bytes that are no UTF-8 (lone surrogates here), which no file of text takes."""
    return text.encode("utf-8", "replace").decode()


def read_actions(connection: sqlite3.Connection, since: Instant, limit: int) -> list[Record]:
    """The newest `limit` actions asked for since then, the newest last."""
    query = "SELECT id, record FROM actions WHERE asked_at >= ? ORDER BY asked_at DESC, rowid DESC LIMIT ?"
    return _records(connection.execute(query, (since, limit)))[::-1]


def read_open(connection: sqlite3.Connection, limit: int) -> list[Record]:
    """The actions that are still watched, or were when their program ended; the newest last."""
    query = "SELECT id, record FROM actions WHERE settled_at IS NULL ORDER BY asked_at DESC, rowid DESC LIMIT ?"
    return _records(connection.execute(query, (limit,)))[::-1]


def _records(rows: Iterable[tuple[str, str]]) -> list[Record]:
    found = []
    for name, text in rows:
        try:
            found.append(msgspec.json.decode(text, type=Record))
        except msgspec.DecodeError as error:
            log.warning("the ledger's action %s is of another version: %s", name, error)
    return found


def read_texts(connection: sqlite3.Connection, action_id: str) -> list[KeptText]:
    """What was kept for an action."""
    query = "SELECT action_id, kind, host, path, at, text FROM action_texts WHERE action_id = ? ORDER BY at, rowid"
    names = KeptText.__struct_fields__
    return [KeptText(**dict(zip(names, row, strict=True))) for row in connection.execute(query, (action_id,))]


def prune_actions(connection: sqlite3.Connection, before: Instant) -> None:
    """Forget what is older than that."""
    connection.execute("DELETE FROM actions WHERE asked_at < ?", (before,))
    connection.execute("DELETE FROM action_texts WHERE at < ?", (before,))
