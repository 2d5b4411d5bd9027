"""The transports below paramiko: TCP, a ProxyCommand, or a tunnel through a jump host.

paramiko itself needs two polls and two reads for a packet, and ten wake-ups a second while idle. This socket
reads ahead and blocks without a timeout (closing wakes it), and never blocks a writer: bytes that the peer does not
take now are kept, and the event loop writes them later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import paramiko

from trainmon.lib import Seconds, clean
from trainmon.transport.event_loop import WRITE, EventLoop

READ_AHEAD = 32_768
PENDING_LIMIT = 16 * 1024 * 1024
"""Bytes kept for a peer that takes nothing; SSH's windows are far smaller."""


class Socket(ABC):
    """The interface that paramiko expects of a socket. `received_at` is when the server last sent anything."""

    def __init__(self, inner: socket.socket | paramiko.Channel) -> None:
        self.received_at = time.monotonic()
        self._inner = inner
        self._ahead = b""
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._closed = False
        self.address = ""
        """The address that it is connected to; empty through a jump host or a ProxyCommand."""

    def recv(self, count: int) -> bytes:
        """Up to count bytes; none at the end. Blocks; only the transport's thread reads."""
        ahead = self._ahead
        if not ahead:
            ahead = self._inner.recv(READ_AHEAD)
            self.received_at = time.monotonic()
        self._ahead = ahead[count:]
        return ahead[:count]

    def send(self, data: bytes) -> int:
        """Send all of it, now or later; never blocks.

        Raises:
            EOFError: when the socket is closed, or too much is pending.
        """
        with self._lock:
            if self._closed or len(self._pending) + len(data) > PENDING_LIMIT:
                raise EOFError
            sent = 0 if self._pending else self._transmit(data)
            if sent < len(data):
                self._pending += data[sent:]
                # A partial write may only mean a packet's limit, not a full peer: go on until nothing goes.
                self._write_pending()
                self._watch_writable(bool(self._pending))
        return len(data)

    def flush(self) -> None:
        """Write what is pending; called when the peer may take more."""
        with self._lock:
            if self._closed:
                return
            try:
                self._write_pending()
            except OSError:
                self._pending.clear()
            self._watch_writable(bool(self._pending))

    def _write_pending(self) -> None:
        while self._pending and (sent := self._transmit(self._pending)):
            del self._pending[:sent]

    def settimeout(self, timeout: float | None) -> None:  # noqa: B027 - not abstract: the same for all
        """Ignored: nothing polls here."""

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._watch_writable(False)
        self._close()

    @abstractmethod
    def _transmit(self, data: bytes | bytearray) -> int:
        """Write what goes now without blocking: 0 when nothing does."""

    @abstractmethod
    def _watch_writable(self, watch: bool) -> None:
        """Have flush() called when the peer takes more, or no longer."""

    @abstractmethod
    def _close(self) -> None:
        """Close it, once; a thread that is blocked in recv() wakes."""


class PlainSocket(Socket):
    """A TCP connection, or one end of a socket pair."""

    def __init__(self, connected: socket.socket, loop: EventLoop) -> None:
        super().__init__(connected)
        connected.settimeout(None)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._loop = loop
        self._is_watched = False

    def _transmit(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _watch_writable(self, watch: bool) -> None:
        if watch and not self._is_watched:
            self._loop.register(self._socket.fileno(), lambda _events: self.flush(), WRITE)
        elif self._is_watched and not watch:
            self._loop.unregister(self._socket.fileno())
        self._is_watched = watch

    def _close(self) -> None:
        # Shutting down, not closing, is what wakes a thread that is blocked in recv().
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class TunnelSocket(Socket):
    """A direct-tcpip channel of a jump host's connection, whose `on_window` calls flush() when its window opens."""

    def __init__(self, channel: paramiko.Channel, on_window: dict[int, Callable[[], None]], loop: EventLoop) -> None:
        super().__init__(channel)
        self._channel = channel
        self._on_window = on_window
        on_window[channel.chanid] = lambda: loop.call_soon(self.flush)

    def _transmit(self, data: bytes | bytearray) -> int:
        return self._channel.send(bytes(data)) if self._channel.send_ready() else 0

    def _watch_writable(self, watch: bool) -> None:
        """Nothing to do: the opened window calls flush()."""

    def _close(self) -> None:
        self._on_window.pop(self._channel.chanid, None)
        self._channel.close()


OUTPUT_LIMIT = 2_000
KILL_AFTER: Seconds = 1.0
LAST_WORDS: Seconds = 1.0
"""Its error waits this long for the loop to read the last line of its standard error."""


class ProxyCommandSocket(PlainSocket):
    """A socket pair with a ProxyCommand at the other end. When the command ends, we read end of file (paramiko's own
    spins at 100%). close() ends the command and whatever it started.
    """

    def __init__(self, command: str, loop: EventLoop) -> None:
        ours, theirs = socket.socketpair()
        self._output = b""
        self._is_read = threading.Event()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", "exec " + command],  # what OpenSSH does: the user's own config has this line
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        super().__init__(ours, loop)
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        loop.register(self._stderr.fileno(), self._read_stderr)

    @property
    def last_error(self) -> str:
        """The last line of its standard error, of a closed one. Not for the loop's thread, which reads it."""
        self._is_read.wait(LAST_WORDS)
        lines = [line for line in self._output.decode("utf-8", "replace").splitlines() if line.strip()]
        return clean(lines[-1], 200) if lines else ""

    def _read_stderr(self, _events: int) -> None:
        try:
            data = os.read(self._stderr.fileno(), 4096)
        except BlockingIOError:
            return
        self._output = (self._output + data)[-OUTPUT_LIMIT:]
        if not data:
            self._close_stderr()

    def _close(self) -> None:
        super()._close()
        self._signal(signal.SIGTERM)
        self._loop.call_soon(self._close_stderr)
        self._loop.reap(self._process)
        self._loop.call_later(KILL_AFTER, lambda: self._signal(signal.SIGKILL))

    def _close_stderr(self) -> None:
        if not self._stderr.closed:
            with contextlib.suppress(BlockingIOError):  # its last words may have come with the end of its output
                self._output = (self._output + os.read(self._stderr.fileno(), 4096))[-OUTPUT_LIMIT:]
            self._loop.unregister(self._stderr.fileno())
            self._stderr.close()
            self._is_read.set()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
