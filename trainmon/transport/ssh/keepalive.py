"""Keepalives: one timer for all connections; a half-open connection is noticed within 15 s."""

from __future__ import annotations

import time
from collections.abc import Callable

from paramiko.ssh_exception import SSHException

from trainmon.lib import Seconds
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import Connection

TICK: Seconds = 1.0
SEND_AFTER: Seconds = 5.0
LOST_AFTER: Seconds = 13.0
"""With one tick of slack on each side, this stays below the 15 s within which an operator must know."""


class Watched:
    """One connection, and the callback for its loss."""

    __slots__ = ("connection", "lost_after", "on_lost", "send_after", "sent_at")

    def __init__(
        self, connection: Connection, settings: HostSettings, on_lost: Callable[[Seconds | None], None]
    ) -> None:
        self.connection = connection
        self.on_lost = on_lost
        self.sent_at = 0.0
        wanted = settings.alive_interval or SEND_AFTER
        self.send_after = min(wanted, SEND_AFTER)
        # As OpenSSH counts: `alive_count` keepalives are sent; the connection is lost one interval after the last.
        self.lost_after = min(wanted * (max(settings.alive_count, 1) + 1), LOST_AFTER)


class Keepalive:
    """Sends keepalives on silent connections, and reports those that do not answer."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._watched: dict[Connection, Watched] = {}
        self._ticking = False
        self._last_tick = 0.0
        self._resumed_at = 0.0

    def watch(self, connection: Connection, settings: HostSettings, on_lost: Callable[[Seconds | None], None]) -> None:
        """Call on_lost on the event loop's thread with the seconds of silence, or None when the connection closed."""
        self._loop.call_soon(lambda: self._add(Watched(connection, settings, on_lost)))

    def forget(self, connection: Connection) -> None:
        self._loop.call_soon(lambda: self._drop(connection))

    def _add(self, watched: Watched) -> None:
        self._watched[watched.connection] = watched
        if not self._ticking:
            self._ticking = True
            self._last_tick = time.monotonic()
            self._loop.call_later(TICK, self._tick)

    def _drop(self, connection: Connection) -> None:
        self._watched.pop(connection, None)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > 3 * TICK:
            # This machine slept (a suspended laptop, SIGSTOP): the replies may be waiting to be read.
            self._resumed_at = now
        self._last_tick = now
        for watched in tuple(self._watched.values()):
            self._check(watched, now)
        self._ticking = bool(self._watched)
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _check(self, watched: Watched, now: Seconds) -> None:
        silence = now - max(watched.connection.socket.received_at, self._resumed_at)
        if not watched.connection.is_active():
            self._drop(watched.connection)
            watched.on_lost(None)
        elif silence >= watched.lost_after:
            self._drop(watched.connection)
            watched.on_lost(silence)
        elif silence >= watched.send_after and now - watched.sent_at >= watched.send_after:
            watched.sent_at = now
            try:
                watched.connection.send_keepalive()
            except (OSError, EOFError, SSHException):
                self._drop(watched.connection)
                watched.on_lost(None)
