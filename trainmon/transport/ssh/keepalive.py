"""Is the other side still there? One timer for all connections: half-open ones are noticed within 15 s."""

from __future__ import annotations

import time
from collections.abc import Callable

from paramiko.ssh_exception import SSHException

from trainmon.lib import Seconds
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import Connection

TICK: Seconds = 1.0
ASK_AFTER: Seconds = 5.0
LOST_AFTER: Seconds = 13.0
"""With a tick of slack on each side, this stays below the 15 s within which an operator must know."""


class Watched:
    """One connection and what to do when it goes."""

    __slots__ = ("ask_after", "asked_at", "connection", "gone", "lost_after")

    def __init__(self, connection: Connection, settings: HostSettings, gone: Callable[[Seconds | None], None]) -> None:
        self.connection = connection
        self.gone = gone
        self.asked_at = 0.0
        wanted = settings.alive_interval or ASK_AFTER
        self.ask_after = min(wanted, ASK_AFTER)
        # As OpenSSH counts: asked `alive_count` times, and given up an interval after the last.
        self.lost_after = min(wanted * (max(settings.alive_count, 1) + 1), LOST_AFTER)


class Keepalive:
    """Asks silent connections for a sign of life, and reports those that give none."""

    def __init__(self, reader: EventLoop) -> None:
        self._reader = reader
        self._watched: dict[Connection, Watched] = {}
        self._beating = False
        self._last_beat = 0.0
        self._resumed_at = 0.0

    def watch(self, connection: Connection, settings: HostSettings, gone: Callable[[Seconds | None], None]) -> None:
        """gone(silence) is called on the reader's thread: the seconds of silence, or None when it simply closed."""
        self._reader.soon(lambda: self._add(Watched(connection, settings, gone)))

    def forget(self, connection: Connection) -> None:
        self._reader.soon(lambda: self._drop(connection))

    def _add(self, watched: Watched) -> None:
        self._watched[watched.connection] = watched
        if not self._beating:
            self._beating = True
            self._last_beat = time.monotonic()
            self._reader.later(TICK, self._beat)

    def _drop(self, connection: Connection) -> None:
        self._watched.pop(connection, None)

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._last_beat > 3 * TICK:
            # We slept ourselves (a suspended laptop, SIGSTOP): the answers may be waiting to be read.
            self._resumed_at = now
        self._last_beat = now
        for watched in tuple(self._watched.values()):
            self._check(watched, now)
        self._beating = bool(self._watched)
        if self._beating:
            self._reader.later(TICK, self._beat)

    def _check(self, watched: Watched, now: Seconds) -> None:
        silence = now - max(watched.connection.wire.received_at, self._resumed_at)
        if not watched.connection.is_active():
            self._drop(watched.connection)
            watched.gone(None)
        elif silence >= watched.lost_after:
            self._drop(watched.connection)
            watched.gone(silence)
        elif silence >= watched.ask_after and now - watched.asked_at >= watched.ask_after:
            watched.asked_at = now
            try:
                watched.connection.ask_alive()
            except (OSError, EOFError, SSHException):
                self._drop(watched.connection)
                watched.gone(None)
