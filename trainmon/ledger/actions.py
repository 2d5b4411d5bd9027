"""Writes the records and texts of actions to the ledger, and reads them."""

from __future__ import annotations

import json
import logging
import math
import shlex
import sqlite3
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from trainmon.lib import Instant, clean, counted, say, scrub
from trainmon.lib.threads import decoder
from trainmon.model import CreateFile, Execute, Operation, Record

log = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")

TEXT_AT_MOST = 256 * 1024
"""How many characters of the end of a text are kept: the last thousand lines of a log."""

COLUMNS = (
    "id", "asked_at", "who", "from_host", "verb", "subject", "run", "job", "cluster", "host", "title", "command", "why",
    "status", "done_at", "outcome", "settled_at", "note", "record",
)  # fmt: skip

RANK = "CASE {}.status WHEN 'asked' THEN 0 WHEN 'unknown' THEN 1 ELSE 2 END"
"""Two programs may follow one action. What one knows to be done, the other does not make unknown or open again."""
WRITE = f"""
    INSERT INTO actions ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
    ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])}
    WHERE {RANK.format("excluded")} > {RANK.format("actions")}
    OR ({RANK.format("excluded")} = {RANK.format("actions")}
        AND (actions.settled_at IS NULL OR excluded.settled_at IS NOT NULL))
"""


class ActionText(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text that belongs to an action, such as the end of the log before a requeue."""

    action_id: str
    kind: str
    host: str
    path: str
    at: Instant
    text: str


def claim_action(connection: sqlite3.Connection, record: Record, *, since: Instant, at_most: int) -> str | None:
    """Write the record of an automatic action, unless a program has written it before, or its run has had as many since
    then. Returns the reason why it must not be done; None if it may."""
    action = record.action
    if connection.execute("SELECT 1 FROM actions WHERE id = ?", (action.id,)).fetchone() is not None:
        return "it was done, or tried, before"
    (count,) = connection.execute(
        "SELECT count(*) FROM actions "
        "WHERE who = ? AND run IS ? AND verb != 'exclude' AND status != 'refused' AND asked_at > ?",
        (action.who, action.run, since),
    ).fetchone()
    if action.verb != "exclude" and count >= at_most:
        return f"{action.run} was requeued automatically {counted(count, 'time')} within a day"
    write_all(connection, [record], ())
    return None


def masked_end(text: str) -> str:
    """The end of a text with its secrets masked and its lines printable."""
    return "\n".join(map(clean, scrub(text[-TEXT_AT_MOST:]).splitlines()))[-TEXT_AT_MOST:]


def shell_command(operation: Operation) -> str:
    """The operation as a shell command for people."""
    if isinstance(operation, Execute):
        return clean(scrub(operation.shown or shlex.join(operation.argv)))
    verb = "create" if isinstance(operation, CreateFile) else "rm"
    return clean(f"{verb} {shlex.quote(operation.path)}")


def write_all(connection: sqlite3.Connection, records: Iterable[Record], texts: Iterable[ActionText]) -> None:
    """Write records and texts; each replaces the row with its key."""
    connection.executemany(WRITE, map(_row, records))
    connection.executemany(
        replace_statement("action_texts", ActionText.__struct_fields__), (storable_row(astuple(kept)) for kept in texts)
    )


def _row(record: Record) -> tuple[str | float | None, ...]:
    record = _said(record)
    action = record.action
    return storable_row((
        action.id, action.requested_at, action.who, action.from_host, action.verb, action.subject, action.run,
        action.job, action.cluster, action.host, action.title, shell_command(action.operation), action.why,
        record.status, record.done_at, say(record.outcome), record.settled_at, record.note,
        as_json(record),
    ))  # fmt: skip


def _said(record: Record) -> Record:
    """The record with texts for its sentences: who reads the ledger needs no parts."""
    action = record.action
    said = {name: tuple(say(one) for one in getattr(action, name)) for name in ("consequences", "warnings")}
    marks = tuple(mark if mark.missed is None else replace(mark, missed=say(mark.missed)) for mark in record.marks)
    return replace(record, action=replace(action, **said), outcome=say(record.outcome), marks=marks)


def as_json(value: object) -> str:
    """A whole value as JSON, to be decoded by its type."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # lone surrogates somewhere in it
        return storable(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def storable(text: str) -> str:
    """The text without lone surrogates: a path may hold bytes that are not UTF-8, and SQLite refuses them."""
    return text.encode("utf-8", "replace").decode()


def replace_statement(table: str, columns: Iterable[str]) -> str:
    """The statement that writes a row in place of the one with its key."""
    names = [f'"{name}"' for name in columns]
    return f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def storable_row(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values of a row as SQLite stores them."""
    return tuple(storable(value) if isinstance(value, str) else value for value in values)


def read_actions(connection: sqlite3.Connection, since: Instant, limit: int) -> list[Record]:
    """The newest `limit` actions requested since then, the newest last."""
    return _records(connection, "asked_at >= ?", since, limit)


def read_open(connection: sqlite3.Connection, limit: int, since: Instant = math.inf) -> list[Record]:
    """The actions whose effect is still verified, or was when their program ended, and those that were requested since
    then; the newest last."""
    return _records(connection, "settled_at IS NULL OR asked_at >= ?", since, limit)


def read_actions_on(
    connection: sqlite3.Connection, run: str, job: str | None, began: Instant, until: Instant, limit: int
) -> list[Record]:
    """The newest actions on a run or a job (`prod/88`) that were requested in this time, the newest last."""
    return _records(connection, "(run = ? OR job = ?) AND asked_at BETWEEN ? AND ?", run, job, began, until, limit)


def read_evaluations(connection: sqlite3.Connection, runs: Iterable[str], limit: int) -> list[Record]:
    """The newest starts of evaluators of these runs, the newest last."""
    return _records(
        connection, "verb = 'evaluate' AND run IN (SELECT value FROM json_each(?))", json.dumps([*runs]), limit
    )


def _records(connection: sqlite3.Connection, condition: str, *values: str | float | None) -> list[Record]:
    rows = connection.execute(
        f"SELECT id, record FROM actions WHERE {condition} ORDER BY asked_at DESC, rowid DESC LIMIT ?", values
    )
    return decode_rows(rows, Record, "action")[::-1]


def decode_rows(rows: Iterable[tuple[object, str]], kind: type[Decoded], what: str) -> list[Decoded]:
    """The values of rows of a name and JSON. A value of another version is logged and left out."""
    found = []
    for name, text in rows:
        try:
            found.append(decoder(kind).decode(text))
        except msgspec.DecodeError as error:
            log.warning("the ledger's %s %s is of another version: %s", what, name, error)
    return found


def read_texts(connection: sqlite3.Connection, action_id: str) -> list[ActionText]:
    """The texts that belong to an action."""
    names = ActionText.__struct_fields__
    query = f"SELECT {', '.join(names)} FROM action_texts WHERE action_id = ? ORDER BY at, rowid"
    return [ActionText(**dict(zip(names, row, strict=True))) for row in connection.execute(query, (action_id,))]
