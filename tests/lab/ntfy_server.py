"""An ntfy server on loopback, as its documents describe it: JSON publish, attachments, topics to read, users, limits.

Errors are ntfy's own: a code, the status in its first three figures, and a sentence.
"""

from __future__ import annotations

import base64
import contextlib
import email.header
import json
import secrets
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.lab.receiver import Answer, Handler, Receiver, Request, status

SENTENCES = {
    40009: "invalid request: topic invalid",
    40014: "invalid request: attachments not allowed",
    40017: "invalid request: request body must be message JSON",
    40035: "invalid request: anonymous phone calls are not allowed",
    40101: "unauthorized",
    40301: "forbidden",
    40401: "page not found",
    41301: "attachment too large, or bandwidth limit reached",
    42901: "limit reached: too many requests",
    42905: "limit reached: daily bandwidth reached",
    42908: "limit reached: daily message quota reached",
    42909: "limit reached: too many auth failures",
    42910: "limit reached: daily phone call quota reached",
    50001: "internal server error",
}
MESSAGE_BYTES = 4_096
KEEPALIVE = 0.5


def error(code: int, retry_after: str | None = None) -> Answer:
    """ntfy's refusal with one of its codes."""
    event = {
        "code": code,
        "http": code // 100,
        "error": SENTENCES.get(code, "no luck"),
        "link": "https://ntfy.sh/docs/",
    }
    return status(code // 100, event, retry_after)


@dataclass(frozen=True, slots=True)
class Message:
    """One that it took."""

    id: str
    topic: str
    at: float
    title: str = ""
    message: str = ""
    priority: int = 3
    tags: tuple[str, ...] = ()
    actions: tuple[Mapping[str, Any], ...] = ()
    click: str = ""
    call: str = ""
    filename: str = ""
    attachment: bytes = b""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The JSON that it came as."""

    @property
    def event(self) -> dict[str, Any]:
        """As a subscriber gets it."""
        event: dict[str, Any] = {"id": self.id, "time": int(self.at), "event": "message", "topic": self.topic}
        return event | {"message": self.message} | ({"title": self.title} if self.title else {})


class NtfyServer(Receiver):
    """A running one. With `users` and `tokens`, only they may publish and read; `open_topics` are for everybody."""

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        tokens: tuple[str, ...] = (),
        open_topics: tuple[str, ...] = (),
        attachment_bytes: int = 2_000_000,
    ) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.users = dict(users or {})
        self.tokens = tokens
        self.open_topics = list(open_topics)
        self.attachment_bytes = attachment_bytes

    def of(self, topic: str) -> list[Message]:
        """What it took for one topic."""
        return [message for message in self.messages if message.topic == topic]

    def press(self, message: Message, label: str = "Acknowledge") -> None:
        """Press a button of a message, as a phone does: an http action is one request from the phone."""
        action = next(action for action in message.actions if action["label"] == label)
        assert (action["action"], action.get("method", "POST")) == ("http", "POST"), action
        assert action["url"].startswith(self.url), action["url"]
        sent = {name.lower(): value for name, value in (action.get("headers") or {}).items()}
        request = Request("POST", action["url"].removeprefix(self.url), sent, action["body"].encode(), time.time())
        answer = self.take(request)
        assert answer.status == 200, answer

    # ---- requests

    def is_scripted(self, request: Request) -> bool:
        """What is published; who reads a topic is let alone."""
        return request.method in ("POST", "PUT")

    def take(self, request: Request) -> Answer:
        place = urllib.parse.urlsplit(request.path)
        topic = urllib.parse.unquote(place.path.strip("/"))
        if not topic:
            try:
                event = request.json
                topic = str(event["topic"])
            except (ValueError, KeyError, TypeError):
                return error(40017)
            return self._refused(topic, request) or self._published(topic, event)
        return self._refused(topic, request) or self._put(topic, request)

    def _refused(self, topic: str, request: Request) -> Answer | None:
        if not 0 < len(topic) <= 64 or not topic.replace("-", "").replace("_", "").isalnum():
            return error(40009)
        if not (self.users or self.tokens) or topic in self.open_topics:
            return None
        sent = request.headers.get("authorization", "")
        if not sent:
            return error(40301)
        scheme, _, rest = sent.partition(" ")
        if scheme == "Bearer":
            return None if rest in self.tokens else error(40101)
        user, _, password = base64.b64decode(rest).decode().partition(":")
        return None if self.users.get(user) == password and password else error(40101)

    def _published(self, topic: str, event: Mapping[str, Any]) -> Answer:
        text = str(event.get("message") or "triggered")
        whole = text.encode()
        message = Message(
            id=secrets.token_urlsafe(9),
            topic=topic,
            at=time.time(),
            title=str(event.get("title") or ""),
            message=text if len(whole) <= MESSAGE_BYTES else "You received a file: attachment.txt",
            priority=int(event.get("priority") or 3),
            tags=tuple(event.get("tags") or ()),
            actions=tuple(event.get("actions") or ()),
            click=str(event.get("click") or ""),
            call=str(event.get("call") or ""),
            filename="" if len(whole) <= MESSAGE_BYTES else "attachment.txt",
            attachment=b"" if len(whole) <= MESSAGE_BYTES else whole,
            raw=event,
        )
        return self._kept(message)

    def _put(self, topic: str, request: Request) -> Answer:
        """A body that is a message, or with a file name an attachment."""
        headers = {name: _decoded(request.headers.get(name, "")) for name in ("x-title", "x-message", "x-filename")}
        if headers["x-filename"] and len(request.body) > self.attachment_bytes:
            return error(41301)
        is_file = bool(headers["x-filename"])
        message = Message(
            id=secrets.token_urlsafe(9),
            topic=topic,
            at=time.time(),
            title=headers["x-title"],
            message=headers["x-message"] if is_file else request.body.decode(),
            priority=int(request.headers.get("x-priority") or 3),
            filename=headers["x-filename"],
            attachment=request.body if is_file else b"",
        )
        return self._kept(message)

    def _kept(self, message: Message) -> Answer:
        with self.lock:
            self.messages.append(message)
        return Answer(status=200, body=json.dumps(message.event).encode())

    # ---- readers of a topic

    def serve(self, handler: Handler, request: Request) -> bool:
        place = urllib.parse.urlsplit(request.path)
        if request.method != "GET":
            return False
        if not place.path.endswith("/json"):
            handler.send(Answer(status=200, body=b'{"healthy":true}') if place.path == "/v1/health" else error(40401))
            return True
        topic = urllib.parse.unquote(place.path.strip("/").removesuffix("/json"))
        refusal = self._refused(topic, request)
        if refusal is not None:
            handler.send(refusal)
            return True
        query = dict(urllib.parse.parse_qsl(place.query))
        lines = self._lines(topic, query.get("since", ""), forever="poll" not in query)
        with contextlib.suppress(ConnectionError):
            _stream(handler, lines)
        return True

    def _lines(self, topic: str, since: str, *, forever: bool) -> Iterator[Mapping[str, Any]]:
        """What is cached, then what comes, as ntfy tells it; a keepalive when nothing does."""
        start = 0 if since else len(self.messages)
        after = next((number + 1 for number, one in enumerate(self.messages) if one.id == since), None)
        oldest = float(since) if since.isdigit() else 0.0
        done = after if after is not None else start
        if forever:
            yield {"id": secrets.token_urlsafe(9), "time": int(time.time()), "event": "open", "topic": topic}
        alive = time.monotonic()
        while True:
            new, done = self.messages[done:], len(self.messages)
            yield from (one.event for one in new if one.topic == topic and one.at >= oldest)
            if not forever or self.stopping.is_set():
                return
            if time.monotonic() - alive > KEEPALIVE:
                alive = time.monotonic()
                yield {"id": secrets.token_urlsafe(9), "time": int(time.time()), "event": "keepalive", "topic": topic}
            self.stopping.wait(0.05)


def _stream(handler: Handler, lines: Iterator[Mapping[str, Any]]) -> None:
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Type", "application/x-ndjson; charset=utf-8")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for line in lines:
        event = json.dumps(line).encode() + b"\n"
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        handler.wfile.flush()
    handler.wfile.write(b"0\r\n\r\n")


def _decoded(value: str) -> str:
    """A header that may be written as RFC 2047 says."""
    return str(email.header.make_header(email.header.decode_header(value)))
