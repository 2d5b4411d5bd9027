"""A command on another host: a channel of an SSH connection that is logged in, and the keepalives of all."""

from __future__ import annotations

import time
from collections.abc import Callable

from paramiko.channel import Channel
from paramiko.ssh_exception import SSHException

from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import CHUNK, CommandStream, Sink
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import Connection

# ---- logged-in connections, and the keepalives of all ----------------------------------------------------------------

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


# ---- A command on another host ---------------------------------------------------------------------------------------

TURN = 4 * CHUNK
"""Bytes that one stream may deliver before the others get their turn."""

PIECE = 8_192
"""Bytes of its input that may be under way to a command. With all of it, five probes that start over 40 KB/s would have
10 s of bytes before every answer to a keepalive, and their connections would count as lost."""

CLOSE_AFTER: Seconds = 1.0
"""A closed stream's command has a second to see the end of its input before its channel is closed."""

GATHER: Seconds = 0.1
"""How long the bytes of a command may wait for those of others, once it has run for GATHER_AFTER. Hundreds of probes
that print a line every 2 s would wake the loop for each: most of what a line costs is the wake-up."""

GATHER_AFTER: Seconds = 10.0
"""A person waits for the start of a probe, and for a short command; nobody for the next line of a long one."""


class SshStream(CommandStream):
    """A running command. It is also the event that paramiko sets when the channel has bytes, or ends."""

    def __init__(
        self,
        connection: Connection,
        channel: Channel,
        sink: Sink,
        loop: EventLoop,
        on_end: Callable[[SshStream], None],
        failure: Callable[[], TrainmonError],
    ) -> None:
        super().__init__(loop, sink)
        self._connection = connection
        self._channel = channel
        self._on_end = on_end
        self._failure = failure
        self._received_at = time.monotonic()
        self._left_after = connection.reached_at
        self._is_under_way = False
        """Whether the server has yet to confirm a piece of the input."""
        self._gathers_from = self._received_at + GATHER_AFTER

    def start(self) -> None:
        self._connection.on_window[self._channel.chanid] = lambda: self._loop.call_soon(self._flush)
        self._channel.in_buffer.set_event(self)  # type: ignore[arg-type]
        self._channel.in_stderr_buffer.set_event(self)  # type: ignore[arg-type]

    def kill(self) -> None:
        """Close its channel now."""
        self._closed = True
        self._loop.call_soon(self._close_channel)

    def _kill_later(self) -> None:
        self._loop.call_later(CLOSE_AFTER, self._close_channel)

    # ---- the event that paramiko sets, on the transport's thread -----------------------------------------------------

    def set(self) -> None:
        self._received_at, self._left_after = time.monotonic(), self._connection.reached_at
        if self._received_at >= self._gathers_from:
            self._loop.call_gathered(GATHER, self._read)
        else:
            self._loop.call_soon(self._read)

    def clear(self) -> None:
        """Nothing to clear: each read takes all there is."""

    # ---- on the event loop's thread ----

    def _flush(self) -> None:
        channel = self._channel
        try:
            if self._pending and not self._is_under_way and not channel.closed and channel.send_ready():
                del self._pending[: channel.send(bytes(self._pending[:PIECE]))]
                self._is_under_way = True
                self._connection.request_answer(lambda: self._loop.call_soon(self._confirmed))
            if self._finishing and (not self._pending or channel.closed):
                channel.shutdown_write()
        except (OSError, EOFError, SSHException):
            # The connection is lost; the end of the channel follows, and says why.
            self._pending.clear()

    def _confirmed(self) -> None:
        self._is_under_way = False
        self._flush()

    def _close_channel(self) -> None:
        if not self._ended:
            self._channel.close()

    def _read(self) -> None:
        if self._ended:
            return
        channel = self._channel
        was_closed = channel.closed  # checked before reading: bytes that came before the end are read before it
        now = time.monotonic()
        self._times = now - self._received_at, now - self._left_after
        taken = 0
        while taken < TURN and channel.recv_ready():
            data = channel.recv(CHUNK)
            taken += len(data)
            self._sink.received(data)
        while taken < TURN and channel.recv_stderr_ready():
            data = channel.recv_stderr(CHUNK)
            taken += len(data)
            self._sink.stderr_received(data)
        if taken >= TURN:
            self._loop.call_soon(self._read)
        elif was_closed:
            self._report_end()

    def _report_end(self) -> None:
        self._ended = True
        number = self._channel.chanid
        self._connection.on_window.pop(number, None)
        ended_by = self._connection.signals.pop(number, 0)
        status = -ended_by or self._channel.exit_status
        self._on_end(self)
        if status >= 0 or ended_by:
            self._sink.ended(status, None)
        elif number in self._connection.refused:
            hint = "see ForceCommand in its sshd_config"
            self._sink.ended(None, CommandFailed("the sshd refused to start the command", hint=hint))
        else:
            self._sink.ended(None, None if self._closed else self._failure())
        self._connection.refused.discard(number)
