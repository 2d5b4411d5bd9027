"""What a paramiko Transport reads from and writes to: a socket, or a tunnel through a jump host.

paramiko itself needs two polls and two reads for a packet, and ten wake-ups a second while idle. This socket
reads ahead and blocks without a timeout (closing wakes it), and never blocks a writer: bytes that the peer does not
take now are kept, and the event loop writes them later.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import paramiko

from trainmon.transport.event_loop import WRITE, EventLoop

READ_AHEAD = 32_768
PENDING_LIMIT = 16 * 1024 * 1024
"""Bytes kept for a peer that takes nothing; SSH's windows are far smaller."""


class Socket:
    """The interface that paramiko expects of a socket. `received_at` is when the server last sent anything."""

    def __init__(self) -> None:
        self.received_at = time.monotonic()
        self._ahead = b""
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._closed = False

    def recv(self, count: int) -> bytes:
        """Up to count bytes; none at the end. Blocks; only the transport's thread reads."""
        ahead = self._ahead
        if not ahead:
            ahead = self._receive()
            self.received_at = time.monotonic()
        self._ahead = ahead[count:]
        return ahead[:count]

    def send(self, data: bytes) -> int:
        """Send all of it, now or later; never blocks."""
        with self._lock:
            if self._closed or len(self._pending) + len(data) > PENDING_LIMIT:
                raise EOFError
            sent = 0 if self._pending else self._transmit(data)
            if sent < len(data):
                self._pending += data[sent:]
                # A partial write may only mean a packet's limit, not a full peer: go on until nothing goes.
                self._write_pending()
                if self._pending:
                    self._watch_writable()
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
            if not self._pending:
                self._unwatch_writable()

    def _write_pending(self) -> None:
        while self._pending and (sent := self._transmit(self._pending)):
            del self._pending[:sent]

    def settimeout(self, timeout: float | None) -> None:
        """Ignored: nothing polls here."""

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._unwatch_writable()
        self._close()

    def getpeername(self) -> tuple[str, int]:
        return ("unknown", 0)

    # What a kind of socket does in its own way:

    def _receive(self) -> bytes:
        raise NotImplementedError

    def _transmit(self, data: bytes | bytearray) -> int:
        """Write what goes now without blocking: 0 when nothing does."""
        raise NotImplementedError

    def _watch_writable(self) -> None:
        """Have flush() called once the peer takes more."""

    def _unwatch_writable(self) -> None:
        """Undo _watch_writable."""

    def _close(self) -> None:
        raise NotImplementedError


class PlainSocket(Socket):
    """A TCP connection, or one end of a socket pair with a ProxyCommand at the other."""

    def __init__(self, connected: socket.socket, loop: EventLoop) -> None:
        super().__init__()
        connected.settimeout(None)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._loop = loop
        self._is_watched = False

    def _receive(self) -> bytes:
        return self._socket.recv(READ_AHEAD)

    def _transmit(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _watch_writable(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.register(self._socket.fileno(), lambda _events: self.flush(), WRITE)

    def _unwatch_writable(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.unregister(self._socket.fileno())

    def _close(self) -> None:
        # Shutting down, not closing, is what wakes a thread that is blocked in recv().
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class TunnelSocket(Socket):
    """A direct-tcpip channel on a jump host's transport, which calls flush() when its window opens."""

    def __init__(self, channel: paramiko.Channel, closed: Callable[[], object]) -> None:
        super().__init__()
        self._channel = channel
        self._on_close = closed

    def _receive(self) -> bytes:
        return self._channel.recv(READ_AHEAD)

    def _transmit(self, data: bytes | bytearray) -> int:
        return self._channel.send(bytes(data)) if self._channel.send_ready() else 0

    def _close(self) -> None:
        self._on_close()
        self._channel.close()
