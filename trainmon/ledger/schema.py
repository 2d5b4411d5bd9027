"""The ledger's tables, as numbered steps: a file of an earlier version is brought up to this one when it is opened."""

from __future__ import annotations

import sqlite3

from trainmon.errors import TrainmonError

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE actions (
            id TEXT PRIMARY KEY,
            asked_at REAL NOT NULL,
            who TEXT NOT NULL,
            from_host TEXT NOT NULL,
            verb TEXT NOT NULL,
            subject TEXT NOT NULL,
            run TEXT,
            job TEXT,
            cluster TEXT NOT NULL,
            host TEXT NOT NULL,
            title TEXT NOT NULL,
            command TEXT NOT NULL,
            why TEXT NOT NULL,
            status TEXT NOT NULL,
            done_at REAL,
            outcome TEXT NOT NULL,
            settled_at REAL,
            note TEXT,
            record TEXT NOT NULL
        )
        """,
        "CREATE INDEX actions_by_time ON actions (asked_at)",
        "CREATE INDEX actions_watched ON actions (asked_at) WHERE settled_at IS NULL",
        """
        CREATE TABLE action_texts (
            action_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            host TEXT NOT NULL,
            path TEXT NOT NULL,
            at REAL NOT NULL,
            text TEXT NOT NULL,
            PRIMARY KEY (action_id, kind, host, path)
        )
        """,
    ),
)
"""The plain columns are for people with SQL; `record` is the whole Record as JSON. Entries are added, never changed."""

VERSION = len(MIGRATIONS)


class NewerLedger(TrainmonError):
    """The file was made by a later version of this program: it is read, and never written."""


def migrate(connection: sqlite3.Connection, file: str) -> None:
    """Bring a file up to this version, a step a transaction. Raises NewerLedger for one that is beyond it."""
    while (version := version_of(connection)) != VERSION:
        if version > VERSION:
            raise NewerLedger(
                f"{file} was made by a newer trainmon-tui (its version {version}, this one knows {VERSION}): "
                "nothing is written down",
                hint="use the newer program here as well, or another XDG_STATE_HOME",
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            if version_of(connection) == version:  # another process may have done it meanwhile
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def version_of(connection: sqlite3.Connection) -> int:
    """Which step a file has reached."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)
