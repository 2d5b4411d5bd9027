"""Which of the programs that share a ledger tells people: one at a time.

On a disk of this machine a lock on a file beside the ledger says so; the kernel lets it go when its program dies,
however it dies, and no clock is asked. On a network file system no lock can be believed: there a row of the ledger is
renewed every few seconds, and is another's to take when it is too old.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmon.clock import Instant, Seconds
from trainmon.ledger.alert_rows import put
from trainmon.ledger.duty import DutyNote, Holder
from trainmon.ledger.rows import as_json

log = logging.getLogger(__name__)

LOCK = "ledger.lock"

ROW_LEASE: Seconds = 60.0
"""How long a row is believed that nobody renews: six times what it is renewed after."""

HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)

DUTY_COLUMNS = (
    "only", "holder", "pid", "host", "boot_id", "started_at", "last_tick_at", "written_at", "duty",
)  # fmt: skip


class Lock:
    """The lock beside a ledger. What it does may hang as a disk may: not for the engine's thread."""

    def __init__(self, directory: Path, holder: Holder) -> None:
        self._file = directory / LOCK
        self._holder = holder
        self._descriptor: int | None = None

    def take(self) -> Holder | None:
        """Have it: None when it is ours (or was already), else who has it. Raises OSError where none can be made."""
        if self._descriptor is not None and not self._is_the_file(self._descriptor):
            self.release()  # somebody removed it: the one there now counts
        if self._descriptor is not None:
            return None
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            found = _read(descriptor)
            os.close(descriptor)
            if error.errno not in HELD:
                raise
            return found or Holder(pid=0, host="")
        self._descriptor = descriptor
        self._sign(descriptor)
        return None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _is_the_file(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            there = self._file.stat()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def _sign(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, as_json(self._holder).encode(), 0)
        except OSError as error:  # a full disk: the lock holds without a name in it
            log.info("the lock beside the ledger could not be signed: %s", error.strerror)


def is_locked(directory: Path) -> bool:
    """Whether some program has the lock now."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in HELD
    finally:
        os.close(descriptor)
    return False


def _read(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4_096, 0), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def claim(connection: sqlite3.Connection, note: DutyNote) -> Holder | None:
    """Have the row: None when it is ours, else who has it."""
    found = read_duty(connection)
    if found is not None and found.holder.name != note.holder.name and is_row_held(found, note.holder, note.written_at):
        return found.holder
    write_duty(connection, note)
    return None


def is_row_held(note: DutyNote, asker: Holder, now: Instant) -> bool:
    """Whether the program that wrote a row counts as there: of this machine by its process, of others by the time."""
    there = note.holder
    if there.host == asker.host and there.boot_id and asker.boot_id:
        return there.boot_id == asker.boot_id and _is_alive(there.pid) and abs(now - note.written_at) < ROW_LEASE
    return abs(now - note.written_at) < ROW_LEASE


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_row_of(connection: sqlite3.Connection, holder: str) -> bool:
    """Whether no other program has taken the row."""
    row = connection.execute("SELECT holder FROM duty").fetchone()
    return row is None or row[0] == holder


def release_row(connection: sqlite3.Connection, holder: str) -> None:
    """Let others have it at once."""
    note = read_duty(connection)
    if note is not None and note.holder.name == holder:
        write_duty(connection, replace(note, written_at=0.0))


def read_duty(connection: sqlite3.Connection) -> DutyNote | None:
    row = connection.execute("SELECT duty FROM duty").fetchone()
    if row is None:
        return None
    try:
        return msgspec.json.decode(row[0], type=DutyNote)
    except msgspec.DecodeError as error:
        log.warning("the ledger's duty is of another version: %s", error)
        return None


def write_duty(connection: sqlite3.Connection, note: DutyNote) -> None:
    holder = note.holder
    connection.execute(
        put("duty", DUTY_COLUMNS),
        (
            1, holder.name, holder.pid, holder.host, holder.boot_id, note.started_at, note.last_tick_at,
            note.written_at, as_json(note),
        ),
    )  # fmt: skip
