"""The metrics as Prometheus reads them: over HTTP, and in a file for node_exporter."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, generate_latest

from trainmon.engine.metrics.families import Totals, families
from trainmon.ledger.ledger import LedgerStuck, totals
from trainmon.lib import Clock, Seconds, write_whole
from trainmon.lib.threads import Background
from trainmon.model import State

log = logging.getLogger(__name__)

# ---- serves /metrics -------------------------------------------------------------------------------------------------

AT_ONCE = 64
"""Connections at a time. For a further one, the oldest is closed that has not sent its request yet; if all have, the
oldest. Prometheus opens one, and sends its request at once."""

WITHIN: Seconds = 10.0
"""How long one request may take: Prometheus waits as long by default (scrape_timeout)."""

Render = Callable[[str], tuple[bytes, str]]
"""From the header Accept to the metrics and their content type."""


class Server(ThreadingHTTPServer):
    """Listens at once; `serve_forever` answers."""

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


# ---- the metrics as Prometheus reads them ----------------------------------------------------------------------------

# ---- writes the metrics to a file for the textfile collector of node_exporter, which reads it at any time ------------


class Textfile:
    """One file. A reader sees all of an old version or all of a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: int | None = None
        """The inode of what this program wrote last."""

    def write(self, text: bytes) -> None:
        """Replace the file.

        Raises: OSError: when it cannot be written.
        """
        try:
            self._written = write_whole(self._path, text, mode=0o644)  # node_exporter runs as another user
        except OSError as error:  # its text names the temporary file, which has another name each time
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def remove(self) -> None:
        """Remove the file: node_exporter would go on to report numbers that nobody updates. One that another program
        has written since is kept."""
        with contextlib.suppress(OSError):
            if self._written is not None and self._path.stat().st_ino == self._written:
                self._path.unlink()
        self._written = None


# ---- offers the newest State to Prometheus, by a server, a file, or both ---------------------------------------------


EVERY: Seconds = 15.0
"""How often the file is written, the totals are read, and a port that is in use is tried again."""


VERSION = re.compile(r"version=([^;]*)")
VERSIONS = frozenset({"0.0.1", "0.0.4", "1.0.0"})
"""Those of the formats that prometheus_client writes. It fails for others, instead of the next format in Accept."""


class Exporter(Background):
    """`observe` takes each State; its own thread does all else. At the end it closes the port and removes the file."""

    stop_timeout = 2.0

    def __init__(
        self,
        address: tuple[str, int] | None,
        textfile: Path | None,
        ledger: Path | None,
        clock: Clock,
        *,
        every: Seconds = EVERY,
    ) -> None:
        """`ledger`: the directory of the ledger; None if this program has none."""
        self._address = address
        self._file = None if textfile is None else Textfile(textfile)
        self._ledger = ledger
        self._clock = clock
        self._every = every
        self._state = State()
        self._totals: Totals = {}
        self._server: Server | None = None
        self._troubles: dict[str, str] = {}
        """What fails now, by what fails: it is logged once."""
        super().__init__("metrics")

    def observe(self, state: State) -> None:
        """Take a new State, on the engine's thread."""
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """The metrics now. This method makes it a Collector of prometheus_client."""
        return families(self._state, self._totals, self._clock.now())

    def _run(self) -> None:
        while True:
            self._try("the totals of the ledger cannot be read", self._read_totals)
            self._try("the metrics cannot be served", self._listen)
            self._try("the textfile cannot be written", self._write)
            if self._stopping.wait(self._every):
                break
        if self._server is not None:
            self._server.close()
        if self._file is not None:
            self._file.remove()

    def _try(self, what: str, work: Callable[[], None]) -> None:
        """Log a failure when it begins, and its end."""
        try:
            work()
        except Exception as error:
            why = error.message if isinstance(error, LedgerStuck) else describe(error)
            if self._troubles.get(what) != why:
                log.warning("%s: %s; this is tried again every %.0fs", what, why, self._every)
            self._troubles[what] = why
        else:
            if self._troubles.pop(what, None) is not None:
                log.info("no longer: %s", what)

    def _read_totals(self) -> None:
        """A total never shrinks: an attempt whose cause changes later counts with both causes."""
        if self._ledger is None:
            return
        known, found = self._totals, totals(self._ledger, self._clock.now())
        self._totals = {
            total: {
                name: max(sums.get(name, 0.0), known.get(total, {}).get(name, 0.0))
                for name in (*known.get(total, {}), *sums)
            }
            for total, sums in found.items()
        } or known

    def _listen(self) -> None:
        if self._address is None or self._server is not None:
            return
        try:
            self._server = Server(self._address, self._render)
        except OSError as error:
            host, port = self._address
            raise OSError(error.errno, error.strerror, f"port {port} of {host}") from error
        threading.Thread(target=self._server.serve_forever, name="metrics server", daemon=True).start()

    def _render(self, accept: str) -> tuple[bytes, str]:
        known = (part for part in accept.split(",") if {one.strip() for one in VERSION.findall(part)} <= VERSIONS)
        encode, content_type = choose_encoder(",".join(known))
        return encode(self), content_type

    def _write(self) -> None:
        if self._file is not None:
            self._file.write(generate_latest(self))


def describe(error: Exception) -> str:
    """What went wrong, in a few words."""
    if not isinstance(error, OSError):
        log.debug("the metrics failed", exc_info=True)
        return f"{type(error).__name__}: {error}"
    return f"{error.filename}: {(error.strerror or 'failed').lower()}"
