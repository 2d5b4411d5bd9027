"""The sockets of the W&B stand-in: GraphQL, the file stream and file transfers, and what a test wants of it instead."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from tests.lab.sockets import Sockets
from tests.lab.wandb_graphql import Execution, Parser, QueryRefused
from tests.lab.wandb_schema import TYPES, Root
from tests.lab.wandb_store import StoredRun, take_stream

if TYPE_CHECKING:
    from tests.lab.wandb_server import WandbServer

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


class Http(Sockets):
    """Its sockets."""

    def __init__(self, stand_in: WandbServer) -> None:
        super().__init__(Handler, stand_in.failures)
        self.stand_in = stand_in


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait 40 ms
    server: Http

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        streams = re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", path)
        if streams:
            self._stream("/".join(streams.groups()), json.loads(body or b"{}"))
        elif path == "/graphql":
            decoded = json.loads(body)
            self._graphql(decoded.get("query", ""), decoded.get("variables") or {}, decoded.get("operationName"))
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

    def _send(self, status: int, decoded: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self._answer(status, json.dumps(decoded).encode(), "application/json", headers)

    def _answer(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        with contextlib.suppress(ConnectionError):  # whoever was tired of waiting
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
