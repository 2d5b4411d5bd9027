"""A command on a host as a Stream: a channel whose bytes the one reader carries to a sink, without a descriptor."""

from __future__ import annotations

from collections.abc import Callable

from paramiko.channel import Channel
from paramiko.ssh_exception import SSHException

from trainmon.lib import CommandFailed, Seconds, TrainmonError
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Sink
from trainmon.transport.ssh.transport import Connection

CHUNK = 65_536
TURN = 4 * CHUNK
"""Bytes that one stream may deliver before the others get their turn."""

PENDING = 64 * 1024 * 1024
"""Bytes kept for a command that reads none of its input; with more, it is given up."""

CLOSE_AFTER: Seconds = 1.0
"""A closed stream's command has a second to see the end of its input before its channel goes."""


class SshStream:
    """A running command. It is also the event that paramiko sets when the channel has bytes, or ends."""

    def __init__(
        self,
        connection: Connection,
        channel: Channel,
        sink: Sink,
        reader: EventLoop,
        gone: Callable[[SshStream], None],
        why: Callable[[], TrainmonError],
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._sink = sink
        self._reader = reader
        self._gone = gone
        self._why = why
        self._pending = bytearray()
        self._finishing = False
        self._closed = False
        self._ended = False

    def start(self) -> None:
        self._connection.room[self._channel.chanid] = lambda: self._reader.soon(self._pump)
        self._channel.in_buffer.set_event(self)  # type: ignore[arg-type]
        self._channel.in_stderr_buffer.set_event(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self._reader.soon(lambda: self._queue(data))

    def finish(self) -> None:
        """Close its standard input once everything queued is written."""
        self._reader.soon(self._finish)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.finish()
        self._reader.later(CLOSE_AFTER, self._hang_up)

    def kill(self) -> None:
        """Close its channel now."""
        self._closed = True
        self._reader.soon(self._hang_up)

    # ---- the event that paramiko sets, on the transport's thread -----------------------------------------------------

    def set(self) -> None:
        self._reader.soon(self._look)

    def clear(self) -> None:
        """Nothing to clear: each look takes all there is."""

    # ---- on the reader's thread --------------------------------------------------------------------------------------

    def _queue(self, data: bytes) -> None:
        if self._finishing or self._ended:
            return
        self._pending += data
        self._pump()
        if len(self._pending) > PENDING:
            self._pending.clear()
            self._hang_up()

    def _finish(self) -> None:
        self._finishing = True
        self._pump()

    def _pump(self) -> None:
        channel = self._channel
        try:
            while self._pending and not channel.closed and channel.send_ready():
                sent = channel.send(bytes(self._pending[:CHUNK]))
                if not sent:
                    break
                del self._pending[:sent]
            if self._finishing and (not self._pending or channel.closed):
                channel.shutdown_write()
        except (OSError, EOFError, SSHException):
            # The connection is gone; the end of the channel, which says why, is on its way.
            self._pending.clear()

    def _hang_up(self) -> None:
        if not self._ended:
            self._channel.close()

    def _look(self) -> None:
        if self._ended:
            return
        channel = self._channel
        was_closed = channel.closed  # asked before reading: what came before the end is read before the end
        taken = 0
        while taken < TURN and channel.recv_ready():
            data = channel.recv(CHUNK)
            taken += len(data)
            self._sink.received(data)
        while taken < TURN and channel.recv_stderr_ready():
            data = channel.recv_stderr(CHUNK)
            taken += len(data)
            self._sink.complained(data)
        if taken >= TURN:
            self._reader.soon(self._look)
        elif was_closed:
            self._end()

    def _end(self) -> None:
        self._ended = True
        number = self._channel.chanid
        self._connection.room.pop(number, None)
        ended_by = self._connection.signals.pop(number, 0)
        status = -ended_by if ended_by else self._channel.exit_status
        refused = number in self._connection.refused
        self._connection.refused.discard(number)
        self._gone(self)
        if ended_by or status >= 0:
            self._sink.ended(status, None)
        elif refused:
            self._sink.ended(None, CommandFailed("sshd there would not start the command", hint="see its ForceCommand"))
        else:
            self._sink.ended(None, None if self._closed else self._why())
