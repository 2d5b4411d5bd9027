"""Serves /metrics: few requests at a time, each with a deadline. Whatever a client does, the daemon goes on."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainmon.lib import Seconds

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Connections at a time. For a further one, the oldest is closed that has not sent its request yet; if all have, the
oldest. Prometheus opens one, and sends its request at once."""

WITHIN: Seconds = 10.0
"""How long one request may take: Prometheus waits as long by default (scrape_timeout)."""

Render = Callable[[str], tuple[bytes, str]]
"""From the header Accept to the metrics and their content type."""


class Server(ThreadingHTTPServer):
    """Listens at once; `serve_forever` answers."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], render: Render, *, within: Seconds = WITHIN) -> None:
        """Raises: OSError: when the address is in use, or not one of this machine."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.render = render
        self._within = within
        self._lock = threading.Lock()
        self._open: dict[Any, bool] = {}
        """The connections, oldest first, and whether the request of each has come."""
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """As of TCPServer. HTTPServer also asks a name server for the name of this machine, which may hang."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= AT_ONCE:
                oldest = min(self._open, key=self._open.__getitem__)
                del self._open[oldest]
                _hang_up(oldest)
            self._open[request] = False
        super().process_request(request, client_address)

    def request_has_come(self, request: Any) -> None:
        """Keep this connection longer than those whose request has not come."""
        with self._lock:
            if request in self._open:
                self._open[request] = True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A client that sends a byte now and then is hung up on, too."""
        timer = threading.Timer(self._within, _hang_up, (request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request for the metrics failed", exc_info=True)


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version, sys_version = "trainmon-tui", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._reply(404, b"the metrics are at /metrics\n", "text/plain; charset=utf-8")
            return
        self.server.request_has_come(self.connection)
        try:
            body, content_type = self.server.render(", ".join(self.headers.get_all("Accept", [])))
        except Exception:
            log.exception("the metrics could not be computed")
            self._reply(500, b"the metrics could not be computed; the log of the daemon says why\n", "text/plain")
            return
        self._reply(200, body, content_type)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _reply(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged of a request."""
