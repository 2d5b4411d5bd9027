"""The ledger's SQLite database: opens its file, with the journal that its disk allows, and describes its errors."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from trainmon.ledger.schema import ONE_PER_START, NewerLedger, migrate, version_of
from trainmon.lib import Seconds, TrainmonError

log = logging.getLogger(__name__)

NAME = "ledger.sqlite"

BUSY: Seconds = 3.0
"""How long one transaction waits for another program's; theirs take a millisecond."""

CHECKED_BYTES = 64 * 1024 * 1024
"""A larger ledger is not checked for damage: the check takes a second for each 200 MB."""

SET_ASIDE = "ledger-damaged-{}.sqlite"
SET_ASIDE_AT_MOST = 3
"""So many damaged files are kept. Then a person must look: the disk damages each new one."""


class Damaged(sqlite3.DatabaseError):
    """A ledger file that is damaged."""

    sqlite_errorname = "SQLITE_CORRUPT"


class LedgerStuck(TrainmonError):
    """The ledger cannot be written or read, or not in time."""


def open_to_write(
    file: Path, *, is_network: bool | None, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Open the ledger, and create it if necessary. Its journal stays as it is if the disk is not known.

    Raises: sqlite3.Error, OSError, NewerLedger.
    """
    _make_private(file)
    connection = sqlite3.connect(file, timeout=BUSY, isolation_level=None, factory=factory, check_same_thread=False)
    try:
        refuse_damage(connection, file)  # first: SQLite itself writes on in the tables that are not damaged
        migrate(connection, str(file))  # before anything else is written: a newer file is not touched
        if is_network is not None:
            try:  # several machines cannot share the memory that the write-ahead log needs (sqlite.org/wal.html)
                connection.execute(f"PRAGMA journal_mode = {'DELETE' if is_network else 'WAL'}")
            except sqlite3.OperationalError as error:  # another program reads just now; the old journal is as safe
                log.info("the ledger's journal mode cannot be changed: %s", error)
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_damage(connection: sqlite3.Connection, file: Path) -> None:
    """Check a file through a connection that was just opened: the cache of an older one hides damage.

    Raises: sqlite3.DatabaseError: `is_damage` is true of it.
    """
    if length(file) <= CHECKED_BYTES:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise Damaged(found)


def set_aside(file: Path, damaged: tuple[int, int]) -> bool:
    """Begin a new ledger with all rows that can be read, and keep the damaged file (known by its identity) beside it.
    Programs that share it do this once. False: too many damaged files are kept already.

    Raises: sqlite3.Error, OSError: when no new file can be written. The damaged one then stays in place.
    """
    kept = next((one for one in _aside(file) if not one.exists()), None)
    try:
        held = file.open("r+b")
    except FileNotFoundError:  # moved away since it was found damaged
        return True
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if kept is None or identity(file) != damaged:  # another program was first
            return kept is not None
        fresh = file.with_name(f"{file.name}.new")
        fresh.unlink(missing_ok=True)
        with closing(open_to_write(fresh, is_network=None)) as new, closing(sqlite3.connect(file, timeout=BUSY)) as old:
            _copy_readable(old, new)
        for ending in ("-wal", "-shm", "-journal", ""):  # the file last: a new one would take the journal for its own
            with suppress(FileNotFoundError):
                file.with_name(file.name + ending).rename(f"{kept}{ending}")
        fresh.rename(file)
    log.critical("the ledger %s was damaged: it is now %s; a new one holds all rows that could be read", file, kept)
    return True


def find_aside(file: Path, damaged: tuple[int, int] | None) -> Path | None:
    """Where a damaged ledger (known by its identity) is kept; None if it was not set aside."""
    return next((one for one in _aside(file) if damaged is not None and identity(one) == damaged), None)


def _aside(file: Path) -> list[Path]:
    return [file.with_name(SET_ASIDE.format(number)) for number in range(1, SET_ASIDE_AT_MOST + 1)]


def _copy_readable(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy each table from both its ends up to the damage."""
    tables = new.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    new.execute("BEGIN IMMEDIATE")
    for (table,) in tables:
        names = ""
        rows: list[tuple[Any, ...]] = []
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.DatabaseError):
                found = old.execute(f"SELECT * FROM {table} ORDER BY rowid {order}")
                names = ", ".join(f'"{name}"' for name, *_ in found.description)
                rows.extend(found)  # those before the damage stay
                break
        if rows:
            values = ", ".join("?" * len(rows[0]))
            new.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({values})", rows)
    new.execute("COMMIT")


def open_to_read(file: Path) -> sqlite3.Connection | None:
    """Open the ledger of any version without changing it; None when there is none."""
    if not file.exists():
        return None
    uri = f"{file.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
    try:
        version_of(connection)
    except sqlite3.OperationalError:
        connection.close()
        # Whether something was written that is not in the file itself yet.
        has_journal = any(length(file.with_name(file.name + ending)) > 0 for ending in ("-wal", "-journal"))
        if os.access(file.parent, os.W_OK) or has_journal:
            raise
        # The write-ahead log needs files of its own beside it, and nobody can make or change any there.
        uri += "&immutable=1"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA temp_store = MEMORY")  # a change of it would drop the view
    connection.execute(f"CREATE TEMP VIEW training_attempts AS {ONE_PER_START}")
    return connection


def identity(file: Path) -> tuple[int, int] | None:
    """Which file has this name now. SQLite reports no error when it writes into a file that was removed."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def length(file: Path) -> int:
    """Its size in bytes; 0 when it does not exist."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def journal_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def drop_journal(file: Path, journal: tuple[int, int] | None) -> None:
    """Delete the journal (known by its identity) of a ledger that another file has replaced: SQLite would write the
    pages of the old file into the new one."""
    if journal is not None and identity(journal_of(file)) == journal:
        for ending in ("-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)


def make_directory(file: Path) -> None:
    """Create the directory of the ledger.

    Raises: OSError: when no ledger can be created there.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file.parent))


def _make_private(file: Path) -> None:
    make_directory(file)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        about = os.fstat(descriptor)
        if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


MESSAGES = {
    "SQLITE_FULL": "its disk is full",
    "SQLITE_BUSY": "another program has it locked",
    "SQLITE_LOCKED": "another program has it locked",
    "SQLITE_PROTOCOL": "its file system cannot lock files; set XDG_STATE_HOME to a directory on a disk of this machine",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_CORRUPT": "it is damaged; move it away, and a new one is created",
    "SQLITE_NOTADB": "it is not a ledger, or it is damaged; move it away, and a new one is created",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_IOERR": "its disk fails",
}
"""By SQLite's primary result code (sqlite.org/rescode.html)."""


def is_damage(error: Exception) -> bool:
    """Whether the file itself is damaged."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def is_locked(error: Exception) -> bool:
    """Whether another program has locked the file."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def describe(error: Exception, file: Path) -> str:
    """One sentence about what is wrong with the ledger."""
    if isinstance(error, NewerLedger):
        return str(error)
    if isinstance(error, OSError):
        return f"the ledger {error.filename or file}: {(error.strerror or 'failed').lower()}"
    name = str(getattr(error, "sqlite_errorname", ""))
    found = (text for code, text in MESSAGES.items() if name == code or name.startswith(f"{code}_"))
    return f"the ledger {file}: {next(found, str(error))}"
