"""A receiver on loopback that answers as a test scripts it: well, refusing, never, half, or dying as it took it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal, Self

from tests.lab.sockets import Sockets

HANG_AT_MOST = 120.0
"""A request that hangs is let go then, or when the receiver stops."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gets."""

    how: Literal["well", "status", "hang", "cut", "die", "close"] = "well"
    """well: taken. status: refused with it. hang: taken off the wire and never answered. cut: hung up in the middle of
    the answer, not taken. die: taken, and hung up before a word of answer. close: hung up before a word is read; only
    as what it always does."""
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


WELL = Answer()
HANG = Answer("hang")
CUT = Answer("cut", 200, b'{"id":')
DIE = Answer("die")
CLOSE = Answer("close")


def status(code: int, reply: Mapping[str, Any] | None = None, retry_after: str | None = None) -> Answer:
    """A refusal, with what else is said."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Answer("status", code, json.dumps(reply).encode() if reply is not None else b"", headers)


@dataclass(frozen=True, slots=True)
class Request:
    """One that came, whatever was answered."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """A running one. `requests` is all that came, `taken` what it says it has."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.taken: list[Request] = []
        self.failures: list[str] = []
        """Where it fell over itself: that is never the sender's doing, and fails the test."""
        self.hung_up = 0
        """How many connections it closed before a word was read."""
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._script: deque[Answer] = deque()
        self._always = WELL
        self._let_go = threading.Event()
        self._http = _Http(self)
        self.port: int = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @classmethod
    @contextlib.contextmanager
    def start(cls, *args: Any, **settings: Any) -> Iterator[Self]:
        receiver = cls(*args, **settings)
        thread = threading.Thread(target=receiver._http.serve_forever, args=(0.05,), name=cls.__name__, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.stopping.set()
            receiver.well()
            receiver._http.shutdown()
            thread.join(10)
            receiver._http.hang_up()
            receiver._http.server_close()
        assert not receiver.failures, f"the receiver fell over: {receiver.failures}"

    # ---- what it answers

    def script(self, *answers: Answer) -> None:
        """The next requests get these, one each; those after them what they always get."""
        with self.lock:
            self._script.extend(answers)

    def always(self, answer: Answer) -> None:
        """Every request from now on gets this; what hung is let go."""
        with self.lock:
            self._always = answer
            self._let_go.set()
            self._let_go = threading.Event()

    def well(self) -> None:
        """As always again."""
        with self.lock:
            self._script.clear()
        self.always(WELL)

    def next_answer(self) -> tuple[Answer, threading.Event]:
        with self.lock:
            return (self._script.popleft() if self._script else self._always), self._let_go

    @property
    def is_closed(self) -> bool:
        """Whether it hangs up on whoever connects."""
        return self._always.how == "close"

    def is_scripted(self, request: Request) -> bool:
        """Whether the script is for this request, too; a receiver may keep some apart."""
        return True

    def take(self, request: Request) -> Answer:
        """Take a request that is not refused, and say what it is answered with."""
        return Answer(status=200, body=b"ok")

    def serve(self, handler: Handler, request: Request) -> bool:
        """Answer in a way of its own (a stream); whether it did."""
        return False

    # ---- what came

    def wait_for(self, count: int, within: float = 120.0) -> list[Request]:
        """Those it took, once there are so many."""
        deadline = time.monotonic() + within
        while len(self.taken) < count:
            assert time.monotonic() < deadline, f"{len(self.taken)} of {count} came within {within:g} s"
            time.sleep(0.02)
        return list(self.taken)


class _Http(Sockets):
    """Its sockets."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(Handler, receiver.failures)
        self.receiver = receiver


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait 40 ms
    server: _Http

    def handle(self) -> None:
        if self.server.receiver.is_closed:
            self.server.receiver.hung_up += 1
        else:
            super().handle()

    def do_POST(self) -> None:
        self._answered()

    def do_PUT(self) -> None:
        self._answered()

    def do_GET(self) -> None:
        self._answered()

    def do_HEAD(self) -> None:
        self._answered()

    def log_message(self, *_: Any) -> None:
        """The test reads `requests`."""

    def _answered(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body, time.time())
        receiver.requests.append(request)
        answer, let_go = receiver.next_answer() if receiver.is_scripted(request) else (WELL, receiver.stopping)
        if answer.how == "hang":
            let_go.wait(HANG_AT_MOST)
        if answer.how == "die":
            receiver.take(request)
            receiver.taken.append(request)
        if answer.how in ("hang", "die"):
            self.close_connection = True
        elif answer.how == "cut":
            self._cut(answer)
        elif answer.how == "status":
            self.send(answer)
        elif not receiver.serve(self, request):
            reply = receiver.take(request)
            if reply.status < 300:
                receiver.taken.append(request)
            self.send(reply)

    def _cut(self, answer: Answer) -> None:
        """More is announced than comes."""
        self.close_connection = True
        with contextlib.suppress(ConnectionError):
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body) + 100))
            self.end_headers()
            self.wfile.write(answer.body)

    def send(self, answer: Answer) -> None:
        with contextlib.suppress(ConnectionError):  # whoever was tired of waiting
            self.send_response(answer.status)
            for name, value in ({"Content-Type": "application/json"} | dict(answer.headers)).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)
