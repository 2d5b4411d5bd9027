"""A stand-in for the W&B server on loopback: the real client writes runs to it and reads them back, no account needed.

It speaks what wandb 0.31 sends (GraphQL, the file stream, file transfers) and keeps all in memory. Its time is a clock
of the test, so that five minutes without a heartbeat need no waiting; and it fails as a test wants it to.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.lab.wandb_graphql import Execution, Parser, QueryRefused
from tests.lab.wandb_schema import TYPES, Root
from tests.lab.wandb_store import Store, StoredRun, take_stream
from trainmon.clock import Clock, SystemClock

FEATURES = ("LARGE_FILENAMES", "ARTIFACT_TAGS", "MARK_RUN_FILES_UPLOADED", "USE_IMPROVED_LOG_LINES_PAGINATION")
"""What a server of today says it can."""

WORDS = {
    401: "user is not logged in",
    403: "permission denied",
    429: "rate limit exceeded",
    500: "An internal error occurred. Please contact support.",
    503: "service unavailable",
}
"""The server's words with a status: no number is in them."""

HANG_AT_MOST = 120.0
"""A request that hangs is let go then, or when the server stops."""


@dataclass(frozen=True, slots=True)
class Request:
    """One that came, whatever was answered. `operation` is GraphQL's name for it, or stream, upload, download."""

    operation: str
    variables: Mapping[str, Any]
    at: float
    query: str = ""
    agent: str = ""
    """The user agent: the client's process says who it is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """How it is unwell: a status for every request, or a delay before each, or no answer at all."""

    status: int | None = None
    retry_after: float | None = None
    delay: float = 0.0
    hangs: bool = False
    over: threading.Event = field(default_factory=threading.Event)


WELL = Fault()


class WandbServer:
    """A running one. `runs` is what it knows, by entity/project/id; `requests` is all that came."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entity = "tester"
        self.key = "local-" + "0123456789abcdef" * 2 + "01234567"
        self.requests: list[Request] = []
        self.failures: list[str] = []
        """Where it fell over itself: that is never the client's doing, and fails the test."""
        self.lock = threading.Lock()
        self.fault = WELL
        self._http = _Http(self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.store = Store(self.url)

    @classmethod
    @contextlib.contextmanager
    def start(cls, clock: Clock | None = None) -> Iterator[WandbServer]:
        server = cls(clock or SystemClock())
        thread = threading.Thread(target=server._http.serve_forever, args=(0.05,), name="wandb-stand-in", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.well()
            server._http.shutdown()
            thread.join(10)
            server._http.hang_up()
            server._http.server_close()
        assert not server.failures, f"the stand-in fell over: {server.failures}"

    @property
    def environ(self) -> dict[str, str]:
        """What points a client here, and keeps it from asking, telling and installing."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.key, "WANDB_ERROR_REPORTING": "false"}

    def environ_in(self, folder: Path) -> dict[str, str]:
        """The same, with all that the client writes in one folder."""
        places = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR")
        return self.environ | {place: str(folder) for place in places}

    # ---- runs

    @property
    def runs(self) -> dict[str, StoredRun]:
        return self.store.runs

    def add_run(
        self, name: str, project: str = "video", *, entity: str | None = None, age: float = 0.0, **facts: Any
    ) -> StoredRun:
        """A run with this id that began `age` seconds ago; facts are fields of StoredRun, config a plain mapping."""
        with self.lock:
            now = self.clock.now()
            run = self.store.add(entity or self.entity, project, name, now - age)
            run.heartbeat_at = now
            run.config = {key: {"value": value, "desc": None} for key, value in facts.pop("config", {}).items()}
            for name, value in facts.items():
                setattr(run, name, value)
            return run

    def log(self, run: StoredRun, values: Mapping[str, Any], *, step: int | None = None) -> None:
        """A row of history now; it is a heartbeat too."""
        with self.lock:
            run.heartbeat_at = self.clock.now()
            run.log(values, step)

    def sweep(self) -> list[str]:
        """W&B's rule of the stale runs, now; the paths of those that it calls crashed."""
        with self.lock:
            return [run.path for run in self.store.sweep(self.clock.now())]

    # ---- requests

    def count(self, operation: str) -> int:
        return sum(request.operation == operation for request in self.requests)

    def asked(self) -> list[Request]:
        """What readers asked: all but what a run's own client sends."""
        return [request for request in self.requests if not request.agent.startswith("wandb-core")]

    # ---- faults

    def answer_with(self, status: int, retry_after: float | None = None) -> None:
        """Every request gets this status."""
        self._turn(Fault(status=status, retry_after=retry_after))

    def hang(self) -> None:
        """Requests are taken and never answered."""
        self._turn(Fault(hangs=True))

    def slow(self, seconds: float) -> None:
        """Each answer comes so much later."""
        self._turn(Fault(delay=seconds))

    def well(self) -> None:
        """As always again; what hung is let go."""
        self._turn(WELL)

    def _turn(self, fault: Fault) -> None:
        before, self.fault = self.fault, fault
        if before is not WELL:
            before.over.set()


class _Http(ThreadingHTTPServer):
    """Its sockets: a thread a connection, all hung up at the end."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, stand_in: WandbServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stand_in = stand_in
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
            self.stand_in.failures.append(repr(error))


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        streams = re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", path)
        if streams:
            self._stream("/".join(streams.groups()), json.loads(body or b"{}"))
        elif path == "/graphql":
            told = json.loads(body)
            self._graphql(told.get("query", ""), told.get("variables") or {}, told.get("operationName"))
        else:
            self._note("unknown", {"path": path})
            self._send(404, {"error": "no such page"})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self._note("upload", {"path": path})
        if self._unwell():
            return
        run, name = self._stored(path)
        if run is None:
            self._send(404, {"error": "no such run"})
            return
        with self._server.lock:
            run.put(name, body, self._server.clock.now())
        self._send(200, {})

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self._note("download", {"path": path})
        if self._unwell():
            return
        run, name = self._stored(path)
        if run is None or name not in run.files:
            self._send(404, {"error": "no such file"})
            return
        self._answer(200, run.files[name].content, "application/octet-stream")

    def log_message(self, *_: Any) -> None:
        """The test reads `requests`."""

    @property
    def _server(self) -> WandbServer:
        return self.server.stand_in

    def _stored(self, path: str) -> tuple[StoredRun | None, str]:
        parts = path.removeprefix("/stored/").split("/", 3)
        return self._server.runs.get("/".join(parts[:3])), parts[3] if len(parts) == 4 else ""

    def _stream(self, path: str, body: Mapping[str, Any]) -> None:
        self._note("stream", {"path": path, **body})
        if self._unwell() or self._unknown():
            return
        run = self._server.runs.get(path)
        if run is None:
            self._send(404, {"error": "no such run"})
            return
        with self._server.lock:
            take_stream(run, body, self._server.clock.now())
        self._send(200, {"exitcode": run.exit_code, "limits": {}, "stopped": run.stop_asked})

    def _graphql(self, query: str, variables: Mapping[str, Any], operation: str | None) -> None:
        server = self._server
        try:
            parsed = Parser(query).operation()
            self._note(operation or parsed.name, variables, query)
            if self._unwell() or self._unknown():
                return
            root = Root(server.store, server.clock.now(), server.entity, FEATURES)
            with server.lock:
                data = Execution(parsed, variables, TYPES).answer(root)
        except QueryRefused as error:
            self._send(400, {"errors": [{"message": str(error)}], "data": None})
            return
        self._send(200, {"data": data})

    def _note(self, operation: str, variables: Mapping[str, Any], query: str = "") -> None:
        server, agent = self._server, self.headers.get("User-Agent", "")
        server.requests.append(Request(operation, variables, server.clock.now(), query, agent))

    def _unwell(self) -> bool:
        """Whether this request got no answer of its own; a slow answer comes late but is one."""
        fault = self._server.fault
        if fault.hangs or fault.delay:
            fault.over.wait(HANG_AT_MOST if fault.hangs else fault.delay)
        if fault.hangs:
            self.close_connection = True
            return True
        if fault.status is None:
            return False
        headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        self._send(fault.status, {"errors": [{"message": WORDS.get(fault.status, "no luck")}], "data": None}, headers)
        return True

    def _unknown(self) -> bool:
        """Whether the key is not ours, and was refused."""
        sent = self.headers.get("Authorization", "").removeprefix("Basic ")
        if base64.b64decode(sent).decode(errors="replace").partition(":")[2] == self._server.key:
            return False
        self._send(401, {"errors": [{"message": WORDS[401], "path": ["viewer"]}], "data": None})
        return True

    def _send(self, status: int, told: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self._answer(status, json.dumps(told).encode(), "application/json", headers)

    def _answer(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        with contextlib.suppress(ConnectionError):  # whoever was tired of waiting
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
