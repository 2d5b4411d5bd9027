"""The sockets of the stand-ins for servers: a thread a connection, all hung up at the end."""

from __future__ import annotations

import contextlib
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Sockets(ThreadingHTTPServer):
    """On loopback, at a port of its own. What goes wrong here is added to `failures`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[BaseHTTPRequestHandler], failures: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._failures = failures
        self._connections: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in [*self._connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        error = sys.exception()
        if not isinstance(error, ConnectionError):  # a client that was killed hangs up in the middle
            self._failures.append(repr(error))
