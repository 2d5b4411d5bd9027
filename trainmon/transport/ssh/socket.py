"""What a paramiko Transport reads from and writes to: a socket, or a tunnel through a jump host.

paramiko's own way with sockets costs two polls and two reads a packet and ten wake-ups a second while idle. A wire
reads ahead and blocks without a timeout (closing wakes it), and never blocks a writer: what a peer does not take now
is kept, and written by the reader's thread once the peer takes it.
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
KEPT = 16 * 1024 * 1024
"""Bytes kept for a peer that takes nothing; SSH's windows end far below."""


class Socket:
    """The socket-like face that paramiko sees. `received_at` is when the other side last said anything."""

    def __init__(self) -> None:
        self.received_at = time.monotonic()
        self._ahead = b""
        self._lock = threading.Lock()
        self._kept = bytearray()
        self._closed = False

    def recv(self, count: int) -> bytes:
        """Some bytes, at least one; none at the end. Blocks; only the transport's thread reads."""
        ahead = self._ahead
        if not ahead:
            ahead = self._receive()
            self.received_at = time.monotonic()
        self._ahead = ahead[count:]
        return ahead[:count]

    def send(self, data: bytes) -> int:
        """Take all of it, now or later; never blocks."""
        with self._lock:
            if self._closed or len(self._kept) + len(data) > KEPT:
                raise EOFError
            sent = 0 if self._kept else self._transmit(data)
            if sent < len(data):
                self._kept += data[sent:]
                # A partial write may only mean a packet's limit, not a full peer: go on until nothing goes.
                self._write_kept()
                if self._kept:
                    self._ask_for_room()
        return len(data)

    def flush(self) -> None:
        """Write what was kept; called when there may be room again."""
        with self._lock:
            if self._closed:
                return
            try:
                self._write_kept()
            except OSError:
                self._kept.clear()
            if not self._kept:
                self._room_no_more()

    def _write_kept(self) -> None:
        while self._kept and (sent := self._transmit(self._kept)):
            del self._kept[:sent]

    def settimeout(self, timeout: float | None) -> None:
        """Not needed: nothing polls here."""

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._room_no_more()
        self._hang_up()

    def getpeername(self) -> tuple[str, int]:
        return ("unknown", 0)

    # What a kind of wire does in its own way:

    def _receive(self) -> bytes:
        raise NotImplementedError

    def _transmit(self, data: bytes | bytearray) -> int:
        """Write what goes now without blocking: 0 when nothing does."""
        raise NotImplementedError

    def _ask_for_room(self) -> None:
        """See to it that flush() is called once there is room."""

    def _room_no_more(self) -> None:
        """Undo it."""

    def _hang_up(self) -> None:
        raise NotImplementedError


class PlainSocket(Socket):
    """A TCP connection, or one end of a socket pair with a ProxyCommand at the other."""

    def __init__(self, connected: socket.socket, reader: EventLoop) -> None:
        super().__init__()
        connected.settimeout(None)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._reader = reader
        self._asked = False

    def _receive(self) -> bytes:
        return self._socket.recv(READ_AHEAD)

    def _transmit(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _ask_for_room(self) -> None:
        if not self._asked:
            self._asked = True
            self._reader.watch(self._socket.fileno(), lambda _events: self.flush(), WRITE)

    def _room_no_more(self) -> None:
        if self._asked:
            self._asked = False
            self._reader.forget(self._socket.fileno())

    def _hang_up(self) -> None:
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

    def _hang_up(self) -> None:
        self._on_close()
        self._channel.close()
