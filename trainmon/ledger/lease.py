"""Elects the leader of the programs that share a ledger: one program notifies people, the others stand by.

No two clocks are compared. A standby watches whether the leader makes progress, and takes over when it has made none
for too long by the standby's own clock.

On a disk of this machine the lease is a file lock (fcntl(2), "Open file description locks"). Linux keeps these locks in
memory: after the file is open nothing here waits for a disk, so a ledger that hangs neither ends a leadership nor
delays the next. The leader holds one byte for each renewal, and locks the next byte to renew. The standby that takes
over locks just that next byte: the kernel grants it to one program, and to none if the leader has renewed meanwhile.
When a program dies its locks are released at once. Locks on a network file system cannot be trusted, and other systems
lack these locks: there a row of the ledger is renewed and taken over in a transaction.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import socket
import sqlite3
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmon.ledger.actions import as_json, decode_rows, replace_statement
from trainmon.lib import Instant, Seconds
from trainmon.lib.threads import decoder
from trainmon.model import Channel

log = logging.getLogger(__name__)

LOCK = "ledger.lock"

ROW_LEASE: Seconds = 60.0
"""How long a row of another machine counts as renewed for a program that reads it once."""

RELEASED: Instant = 0.0
"""The time in a row that its program has released."""

HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)

FLOCK = "hhqqi4x"
"""Linux's struct flock with 64-bit offsets: type, whence, start, length (0: to the end), pid."""


class LeaseLock:
    """The lock beside a ledger. Any thread may call it. Only `take` may hang, when its disk does."""

    def __init__(self, directory: Path, holder: Holder) -> None:
        self._file = directory / LOCK
        self._holder = holder
        self._mutex = threading.Lock()
        """Never held during disk access."""
        self._descriptor: int | None = None
        self._end: int | None = None
        """The byte after ours; None while we do not lead."""
        self._is_lost = False
        """Whether another program took over from us since we last led."""

    def take(self) -> Holder | None:
        """Lead if no other program does. Return None when this program leads, else the leader.

        Raises: OSError: when no lock can be created.
        """
        if self._descriptor is not None and not self._is_the_file(self._descriptor):
            self.release()  # somebody removed the file: the one there now counts
        if self._descriptor is None:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        descriptor, signed = self._descriptor, None
        with contextlib.suppress(OSError, msgspec.DecodeError):
            signed = decoder(Holder).decode(os.pread(descriptor, 4_096, 0))
        try:
            leads = self.is_ours or (self.reach() is None and self.take_over(0))
        except OSError:  # a file system without such locks
            self.release()
            raise
        if not leads:  # a program that took over just now has not signed yet
            return Holder(pid=0, host="") if signed is None or signed == self._holder else signed
        if signed != self._holder:
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, as_json(self._holder).encode(), 0)
            except OSError as error:  # a full disk: the lock holds without a name in it
                log.info("the lock beside the ledger could not be signed: %s", error.strerror)
        return None

    def reach(self) -> int | None:
        """Where the locks of other programs end; it grows while the leader renews. None: no other program leads."""
        with self._mutex:
            return None if self._descriptor is None else _reach(self._descriptor, 0)

    def take_over(self, reach: int) -> bool:
        """Lead from now on, if the locks of others still end there."""
        with self._mutex:
            if self._descriptor is None or not _lock(self._descriptor, reach):
                return False
            self._end, self._is_lost = reach + 1, False
            return True

    def renew(self, *, has_progressed: bool) -> bool:
        """Renew the lease if this program has made progress. False: another program has taken over."""
        with self._mutex:
            if self._descriptor is None or self._end is None:
                return not self._is_lost  # no lock could be created: two programs that notify are better than none
            if self._has_lock() and (not has_progressed or _lock(self._descriptor, self._end)):
                self._end += has_progressed
                return True
            _set(self._descriptor, fcntl.F_UNLCK, 0, 0)
            self._end, self._is_lost = None, True
            return False

    @property
    def is_ours(self) -> bool:
        with self._mutex:
            return self._has_lock()

    @property
    def is_superseded(self) -> bool:
        """Whether another program has taken over from us."""
        with self._mutex:
            return self._is_lost or (self._end is not None and not self._has_lock())

    def _has_lock(self) -> bool:
        return self._descriptor is not None and self._end is not None and _reach(self._descriptor, self._end) is None

    def release(self) -> None:
        with self._mutex:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = self._end = None
            self._is_lost = False

    def _is_the_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._file.stat())
        except OSError:
            return False


def is_locked(directory: Path) -> bool:
    """Whether any program has the lock now."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _reach(descriptor, 0) is not None
    finally:
        os.close(descriptor)


def _reach(descriptor: int, start: int) -> int | None:
    """Where the last lock of other programs from `start` on ends."""
    reach = None
    while True:
        query = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, 0, 0)
        kind, _, at, length, _ = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, query))
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


def claim_row(connection: sqlite3.Connection, note: LeaderNote, silent: object = None) -> LeaderNote | None:
    """Claim the row: None when it is ours, else the note of its leader. A row that still shows the sign `silent` is
    taken from its leader."""
    found = read_note(connection)
    if found is not None and found.holder.name != note.holder.name:
        is_free = found.written_at == RELEASED or _is_dead(found.holder, note.holder)
        if not is_free and sign_of(found) != silent:
            return found
    write_note(connection, note)
    return None


def sign_of(note: LeaderNote) -> tuple[str, Instant | None]:
    """The leader that a row names, and when it last evaluated its rules: it leads while that changes."""
    return note.holder.name, note.last_tick_at


def is_row_held(note: LeaderNote, reader: Holder, now: Instant) -> bool:
    """Whether the program that wrote a row counts as running, for a program that reads it once."""
    return not _is_dead(note.holder, reader) and abs(now - note.written_at) < ROW_LEASE


def _is_dead(holder: Holder, us: Holder) -> bool:
    """Whether a program does not run any more; known only of programs of this machine."""
    if holder.host != us.host or not holder.boot_id or not us.boot_id:
        return False
    if holder.boot_id != us.boot_id:
        return True
    try:
        os.kill(holder.pid, 0)
    except OSError as error:  # PermissionError: it runs as another user
        return isinstance(error, ProcessLookupError)
    return False


def is_row_of(connection: sqlite3.Connection, holder: str) -> bool:
    """Whether no other program has taken the row."""
    return connection.execute("SELECT holder FROM duty").fetchone() in (None, (holder,))


def release_row(connection: sqlite3.Connection, holder: str) -> None:
    """Let other programs take the row at once."""
    note = read_note(connection)
    if note is not None and note.holder.name == holder:
        write_note(connection, replace(note, written_at=RELEASED))


def read_note(connection: sqlite3.Connection) -> LeaderNote | None:
    rows = connection.execute("SELECT holder, duty FROM duty")
    return next(iter(decode_rows(rows, LeaderNote, "note of the leader")), None)


def write_note(connection: sqlite3.Connection, note: LeaderNote) -> None:
    holder = note.holder
    values: dict[str, object] = {
        "only": 1, "holder": holder.name, "pid": holder.pid, "host": holder.host, "boot_id": holder.boot_id,
        "started_at": note.started_at, "last_tick_at": note.last_tick_at, "written_at": note.written_at,
        "duty": as_json(note),
    }  # fmt: skip
    connection.execute(replace_statement("duty", values), tuple(values.values()))


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SourceNote(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one source."""

    name: str
    kind: str
    health: str
    answered_at: Instant | None = msgspec.field(default=None, name="seen_at")
    error: str | None = None


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """One program, distinct from every other one that runs or ran."""

    pid: int
    host: str
    boot_id: str = ""
    """Identifies this boot of the machine: no process of an earlier boot is alive."""
    name: str = ""
    """Random, because a PID is used again."""


class LeaderNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader writes about itself every few seconds."""

    holder: Holder
    program: str = ""
    """`alerts-only` or `dashboard`."""
    started_at: Instant
    last_tick_at: Instant | None = None
    """When it last evaluated all rules."""
    written_at: Instant
    problem: str | None = msgspec.field(default=None, name="words")
    """One sentence about what is wrong with it."""
    sources: tuple[SourceNote, ...] = ()
    unrecorded: Mapping[str, tuple[str, ...]] = {}
    """By source, such as `slurm:prod`: the runs whose attempts are not recorded while it does not answer."""
    channels: tuple[Channel, ...] = ()


class LeaderNow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest note, and whether the program that wrote it still leads."""

    note: LeaderNote
    is_held: bool
    """Whether any program leads now; certain only on a disk of this machine."""


def this_program() -> Holder:
    """This program."""
    boot_id = ""
    with contextlib.suppress(OSError):  # not Linux: the PID must do
        boot_id = BOOT_ID.read_text().strip()
    return Holder(pid=os.getpid(), host=socket.gethostname(), boot_id=boot_id, name=secrets.token_hex(8))
