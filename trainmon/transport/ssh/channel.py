"""A command on another host: a channel of an SSH connection, which uses no descriptor of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

from paramiko.channel import Channel
from paramiko.ssh_exception import SSHException

from trainmon.lib import CommandFailed, Seconds, TrainmonError
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import CHUNK, CommandStream, Sink
from trainmon.transport.ssh.transport import Connection

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
