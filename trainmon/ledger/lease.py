"""Which of the programs that share a ledger leads: one at a time notifies people, the others stand by.

Nobody compares two clocks: a standby watches whether the leader makes progress, and takes over what stood still for too
long by its own clock, if it has not moved by then.

On a disk of this machine the lease is a file lock (fcntl(2), "Open file description locks"). Linux keeps these in its
own memory: once the file is open none of this waits for a disk, so that a ledger that hangs neither ends a leadership
nor delays the next. The leader holds one byte for each renewal, and locks the next one to renew. The standby that takes
over locks just that next byte: the kernel grants it to one program, and to none if the leader has renewed meanwhile.
When a program dies its locks are gone at once. On a network file system no lock can be believed, and other systems lack
these: there a row of the ledger is renewed and taken over, in a transaction.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import socket
import sqlite3
import struct
import sys
import threading
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmon.ledger.actions import as_json
from trainmon.ledger.alerts import put
from trainmon.lib import Instant, Seconds
from trainmon.model import Channel

log = logging.getLogger(__name__)

LOCK = "ledger.lock"

ROW_LEASE: Seconds = 60.0
"""For who only reads once: how long a row of another machine counts as renewed."""

RELEASED: Instant = 0.0
"""When a row was written that its program has let go of."""

HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)

FLOCK = "hhqqi4x"
"""Linux's struct flock with 64-bit offsets: type, whence, start, length (0: to the end), pid."""

DUTY_COLUMNS = (
    "only", "holder", "pid", "host", "boot_id", "started_at", "last_tick_at", "written_at", "duty",
)  # fmt: skip

Sign = tuple[str, Instant | None]
"""The leader that a row names, and when it last evaluated its rules: it leads while that changes."""


def is_row(*, is_network: bool) -> bool:
    """Whether the lease of a ledger is a row of it, and no lock."""
    return is_network or sys.platform != "linux"


class Lock:
    """The lock beside a ledger. `take` may hang as a disk may; nothing else here does, and all may be called from any
    thread."""

    def __init__(self, directory: Path, holder: Holder) -> None:
        self._file = directory / LOCK
        self._holder = holder
        self._guard = threading.Lock()
        """Never held while a disk is waited for."""
        self._descriptor: int | None = None
        self._end: int | None = None
        """The byte after ours; None while we do not lead."""
        self._is_lost = False
        """Whether another program took over from us since we last led."""

    def take(self) -> Holder | None:
        """Lead if nobody does: None when we do (or did already), else who does. Raises OSError where no lock can be
        made."""
        if self._descriptor is not None and not self._is_the_file(self._descriptor):
            self.release()  # somebody removed it: the one there now counts
        if self._descriptor is None:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._file, flags, 0o600)
        descriptor = self._descriptor
        signed = _read(descriptor)
        try:
            leads = self.is_ours or (self.reach() is None and self.take_over(0))
        except OSError:  # a file system without such locks
            self.release()
            raise
        if leads:
            if signed != self._holder:
                self._sign(descriptor)
            return None
        if signed is None or signed == self._holder:  # whoever took over has not signed yet
            return Holder(pid=0, host="")
        return signed

    def reach(self) -> int | None:
        """Where the locks of other programs end; it grows while the leader renews. None: nobody leads."""
        with self._guard:
            return None if self._descriptor is None else _reach(self._descriptor, 0)

    def take_over(self, reach: int) -> bool:
        """Lead from now on, if the locks of others still end there."""
        with self._guard:
            if self._descriptor is None or not _lock(self._descriptor, reach):
                return False
            self._end, self._is_lost = reach + 1, False
            return True

    def renew(self, *, has_progressed: bool) -> bool:
        """Show that we make progress, if we do. False: another program has taken over."""
        with self._guard:
            if self._descriptor is None or self._end is None:
                return not self._is_lost  # where none could be made: rather two programs that notify than none
            if self._is_free_above() and (not has_progressed or _lock(self._descriptor, self._end)):
                self._end += has_progressed
                return True
            _set(self._descriptor, fcntl.F_UNLCK, 0, 0)
            self._end, self._is_lost = None, True
            return False

    @property
    def is_ours(self) -> bool:
        with self._guard:
            return self._end is not None and self._is_free_above()

    @property
    def is_superseded(self) -> bool:
        """Whether another program has taken over from us."""
        with self._guard:
            return self._is_lost or (self._end is not None and not self._is_free_above())

    def _is_free_above(self) -> bool:
        assert self._descriptor is not None
        assert self._end is not None
        return _reach(self._descriptor, self._end) is None

    def release(self) -> None:
        with self._guard:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = self._end = None
            self._is_lost = False

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
        return _reach(descriptor, 0) is not None
    finally:
        os.close(descriptor)


def _reach(descriptor: int, start: int) -> int | None:
    """Where the last lock that others have from `start` on ends."""
    reach = None
    while True:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, 0, 0)
        kind, _, at, length, _ = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return reach
        start = reach = at + length


def _lock(descriptor: int, byte: int) -> bool:
    try:
        _set(descriptor, fcntl.F_WRLCK, byte, 1)
    except OSError as error:
        if error.errno not in HELD:
            raise
        return False
    return True


def _set(descriptor: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))


def _read(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4_096, 0), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def claim(connection: sqlite3.Connection, note: LeaderNote, silent: object = None) -> LeaderNote | None:
    """Have the row: None when it is ours, else what its leader wrote. One that still shows the sign `silent` is taken
    from its leader."""
    found = read_duty(connection)
    if found is not None and found.holder.name != note.holder.name:
        is_free = found.written_at == RELEASED or _is_dead(found.holder, note.holder)
        if not is_free and sign_of(found) != silent:
            return found
    write_duty(connection, note)
    return None


def sign_of(note: LeaderNote) -> Sign:
    return note.holder.name, note.last_tick_at


def is_row_held(note: LeaderNote, asker: Holder, now: Instant) -> bool:
    """Whether the program that wrote a row counts as there, for who looks once."""
    return not _is_dead(note.holder, asker) and abs(now - note.written_at) < ROW_LEASE


def _is_dead(there: Holder, asker: Holder) -> bool:
    """Known of programs of this machine only."""
    if there.host != asker.host or not there.boot_id or not asker.boot_id:
        return False
    return there.boot_id != asker.boot_id or not _is_alive(there.pid)


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
        write_duty(connection, replace(note, written_at=RELEASED))


def read_duty(connection: sqlite3.Connection) -> LeaderNote | None:
    row = connection.execute("SELECT duty FROM duty").fetchone()
    if row is None:
        return None
    try:
        return msgspec.json.decode(row[0], type=LeaderNote)
    except msgspec.DecodeError as error:
        log.warning("the ledger's duty is of another version: %s", error)
        return None


def write_duty(connection: sqlite3.Connection, note: LeaderNote) -> None:
    holder = note.holder
    connection.execute(
        put("duty", DUTY_COLUMNS),
        (
            1, holder.name, holder.pid, holder.host, holder.boot_id, note.started_at, note.last_tick_at,
            note.written_at, as_json(note),
        ),
    )  # fmt: skip


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SourceNote(msgspec.Struct, frozen=True, kw_only=True):
    """How one source of facts is doing, in short."""

    name: str
    kind: str
    health: str
    seen_at: Instant | None = None
    error: str | None = None


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """One program, told apart from every other one that is or was."""

    pid: int
    host: str
    boot_id: str = ""
    """Of this start of the machine: after another one no process of before is alive."""
    name: str = ""
    """Random: a process number is used again."""


class LeaderNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the program on duty says of itself, every few seconds."""

    holder: Holder
    program: str = ""
    """`alerts-only` or `dashboard`."""
    started_at: Instant
    last_tick_at: Instant | None = None
    """When it last went through all rules."""
    written_at: Instant
    words: str | None = None
    """What is wrong with it, in a sentence."""
    sources: tuple[SourceNote, ...] = ()
    channels: tuple[Channel, ...] = ()


class LeaderNow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest note, and whether the program that wrote it is still there."""

    note: LeaderNote
    is_held: bool
    """Whether some program holds the duty now; known for sure on a disk of this machine."""


def ourselves() -> Holder:
    """This program."""
    return Holder(pid=os.getpid(), host=socket.gethostname(), boot_id=_boot_id(), name=secrets.token_hex(8))


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""  # not Linux: a process number must then do
