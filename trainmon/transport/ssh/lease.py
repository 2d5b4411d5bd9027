"""Logged-in connections, and the keepalives of all: a half-open connection is noticed within 15 s."""

from __future__ import annotations

import time

from paramiko.ssh_exception import SSHException

from trainmon.lib import HostUnreachable, Seconds, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import Connection

TICK: Seconds = 1.0
SEND_AFTER: Seconds = 5.0
LOST_AFTER: Seconds = 13.0
"""With one tick of slack on each side, this stays below the 15 s within which an operator must know."""


class Lease:
    """A logged-in connection, its jump host, and its number of users."""

    def __init__(self, settings: HostSettings, connection: Connection, via: Lease | None, prompted: bool) -> None:
        self.settings = settings
        self.connection = connection
        self.via = via
        self.prompted: bool = prompted or (via is not None and via.prompted)
        self.users = 0
        self.closed = False
        self.keepalive_sent_at = 0.0
        interval = settings.alive_interval or SEND_AFTER
        self.send_after = min(interval, SEND_AFTER)
        # As OpenSSH counts: `alive_count` keepalives are sent; the connection is lost one interval after the last.
        self.lost_after = min(interval * (max(settings.alive_count, 1) + 1), LOST_AFTER)
        self._lost: HostUnreachable | None = None

    def mark_lost(self, silence: Seconds | None) -> None:
        """Close it: the server was silent this long (a half-open connection), or closed the connection (None)."""
        host = self.settings.name
        if self._lost is None and silence is not None:
            hint = "the machine or its network is down, or hangs"
            self._lost = HostUnreachable(host, f"{host}: no data for {silence:.0f}s", hint=hint)
        self.connection.close()

    def failure(self) -> HostUnreachable:
        """Why it ended, as far as is known."""
        host = self.settings.name
        if self._lost is not None:
            return self._lost
        if self.via is not None and not self.via.connection.is_active():
            return HostUnreachable(host, f"{host}: {self.via.failure().message}", hint="check its jump host")
        reason = clean(self.connection.disconnect_reason, 200)
        return HostUnreachable(host, f"{host}: the server closed the connection" + (f": {reason}" if reason else ""))

    def close(self) -> None:
        self.closed = True
        self.connection.close()
        self.connection.socket.close()


class Keepalive:
    """Sends keepalives on silent connections, and marks those lost that do not answer."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._leases: set[Lease] = set()
        self._ticking = False
        self._last_tick = 0.0
        self._resumed_at = 0.0

    def watch(self, lease: Lease) -> None:
        self._loop.call_soon(lambda: self._add(lease))

    def forget(self, lease: Lease) -> None:
        self._loop.call_soon(lambda: self._leases.discard(lease))

    # ---- on the event loop's thread ----

    def _add(self, lease: Lease) -> None:
        self._leases.add(lease)
        if not self._ticking:
            self._ticking = True
            self._last_tick = time.monotonic()
            self._loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > 3 * TICK:
            # This machine slept (a suspended laptop, SIGSTOP): the replies may be waiting to be read.
            self._resumed_at = now
        self._last_tick = now
        for lease in tuple(self._leases):
            silence = now - max(lease.connection.socket.received_at, self._resumed_at)
            if not self._is_alive(lease, silence, now):
                self._leases.discard(lease)
                lease.mark_lost(silence if silence >= lease.lost_after and lease.connection.is_active() else None)
        self._ticking = bool(self._leases)
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _is_alive(self, lease: Lease, silence: Seconds, now: Seconds) -> bool:
        """Send a keepalive, if one is due."""
        if not lease.connection.is_active() or silence >= lease.lost_after:
            return False
        if silence >= lease.send_after and now - lease.keepalive_sent_at >= lease.send_after:
            lease.keepalive_sent_at = now
            try:
                lease.connection.request_answer()
            except (OSError, EOFError, SSHException):
                return False
        return True
