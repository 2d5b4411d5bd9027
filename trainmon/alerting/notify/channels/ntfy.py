"""The channel `ntfy`: a push message by ntfy.sh or a server of one's own, with an Acknowledge button and pictures."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from trainmon.alerting.notify.base import Attachment, Broken, Message, Retry, Sent
from trainmon.alerting.notify.channels.http import Http, Reply, host_of, judge, text_of
from trainmon.alerting.notify.message import fit, fitted, is_good_news
from trainmon.lib import Clock, Seconds, SystemClock, clean
from trainmon.model import Channel, Severity

MESSAGE_BYTES = 4_096
"""ntfy's own limit; what is longer, it would turn into a file and show nothing of."""
TITLE_BYTES = 250
PUBLIC = "ntfy.sh"
PUBLIC_FILE_BYTES, FILE_BYTES = 2_000_000, 15_000_000
"""The largest attachment: of ntfy.sh without an account, and of a server as it is installed."""
FILES = 4
LEAST: Seconds = 0.5
"""A request gets at least so long, though the time is nearly over."""
URGENT: Seconds = 8.0
"""So long the files of a critical message may take: the next one may wait behind them."""
PRIORITY: dict[Severity, int] = {"critical": 5, "warning": 4, "info": 3}
QUIET = 2
"""Comes without a sound: signs of life, and files that follow their message."""
TAGS: dict[Severity, str] = {"critical": "rotating_light", "warning": "warning", "info": "information_source"}
WHOLE_IS_ATTACHED = "… the whole text is in the file that follows"

QUOTA = 42908
"""A daily quota: tomorrow is too late, so it counts as broken and the fallback is told at once."""
NEVER = {QUOTA: "its messages of today are used up", 42909: "it was logged in to wrongly too often"}
REFILL: Seconds = 10.0
"""After 42901: a visitor gets a request more every 5 s."""
NO_CALL = frozenset({40032, 40033, 40034, 40035, 40037, 42910})
"""Reasons not to ring that are none not to push."""


class Ntfy:
    """One topic on one server."""

    def __init__(
        self,
        health: Channel,
        *,
        server: str,
        topic: str,
        login: str | None = None,
        call: str | None = None,
        reply_topic: str | None = None,
        reply_login: str | None = None,
        pictures: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """`login` is the whole Authorization header. Without a reply topic there is no button."""
        self._health = health
        self._server = server.rstrip("/")
        self._topic = topic
        self._headers = {"Authorization": login} if login else {}
        self._call = call
        self.reply_topic = reply_topic
        self._reply_login = reply_login
        self._pictures = pictures
        self._clock = clock or SystemClock()
        self._http = Http(health.name, self._clock)
        self._file_bytes = PUBLIC_FILE_BYTES if host_of(server) == PUBLIC else FILE_BYTES

    @property
    def health(self) -> Channel:
        return self._health

    @property
    def server(self) -> str:
        return self._server

    @property
    def headers(self) -> dict[str, str]:
        """What logs in."""
        return dict(self._headers)

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """The message first: whatever becomes of its files and its call, it has arrived."""
        until = self._clock.monotonic() + timeout
        text, is_whole = fitted(message, MESSAGE_BYTES, WHOLE_IS_ATTACHED)
        told = self._told(message, text)
        missed: list[str] = []
        reply = self._publish(told, until)
        if "call" in told and code_of(reply) in NO_CALL:
            missed.append(f"it did not ring: {said_by(reply)}")
            reply = self._publish({key: value for key, value in told.items() if key != "call"}, until)
        _judge(reply)
        if message.severity == "critical":
            until = min(until, self._clock.monotonic() + URGENT)
        missed += [words for file in self._files(message, is_whole) if (words := self._follow(file, message, until))]
        return Sent("; ".join([_id(reply), *missed]))

    def check(self, timeout: Seconds) -> str | None:
        """Why answers of phones cannot be read; None when they can, or none are wanted."""
        if not self.reply_topic:
            return None
        url = f"{self._server}/{self.reply_topic}/json?poll=1&since=1s"
        try:
            reply = self._http.ask("GET", url, headers=self._headers, timeout=timeout)
        except (Retry, Broken) as error:
            return error.message
        return None if reply.is_good else f"its reply topic cannot be read: {said_by(reply)}"

    def close(self) -> None:
        """Nothing is held between two messages."""

    def _publish(self, told: dict[str, Any], until: Seconds) -> Reply:
        body = json.dumps(told, ensure_ascii=False).encode(errors="replace")
        headers = {"Content-Type": "application/json", **self._headers}
        return self._http.ask("POST", f"{self._server}/", body=body, headers=headers, timeout=self._left(until))

    def _left(self, until: Seconds) -> Seconds:
        return max(LEAST, until - self._clock.monotonic())

    def _told(self, message: Message, text: str) -> dict[str, Any]:
        is_beat = all(notice.kind == "heartbeat" for notice in message.notices)
        is_over = is_good_news(message)
        told: dict[str, Any] = {
            "topic": self._topic,
            "title": fit(message.title, TITLE_BYTES, "…")[0].replace("\n", ""),
            "message": text or message.title,
            "priority": QUIET if is_beat else PRIORITY[message.severity],
            "tags": ["white_check_mark" if is_over else "green_heart" if is_beat else TAGS[message.severity]],
        }
        if message.link:
            told["click"] = message.link
        if actions := list(self._actions(message)):
            told["actions"] = actions
        if self._call and message.severity == "critical":
            told["call"] = self._call
        return told

    def _actions(self, message: Message) -> Iterator[dict[str, Any]]:
        """At most three are shown."""
        if self.reply_topic and message.acknowledge:
            pairs = " ".join(f"{alert} {token}" for alert, token in message.acknowledge)
            headers = {"Authorization": self._reply_login} if self._reply_login else {}
            yield {
                "action": "http",
                "label": "Acknowledge",
                "url": f"{self._server}/{self.reply_topic}",
                "method": "POST",
                "headers": headers,
                "body": f"ack {pairs}",
                "clear": True,
            }
        if message.link:
            yield {"action": "view", "label": "Open", "url": message.link}

    def _files(self, message: Message, is_whole: bool) -> Iterator[Attachment]:
        if not is_whole:
            yield Attachment(name="message.txt", media_type="text/plain", data=message.body.encode())
        if self._pictures:
            yield from message.attachments[:FILES]

    def _follow(self, file: Attachment, message: Message, until: Seconds) -> str | None:
        """Send a file after its message; why it was not taken."""
        name = clean(file.name, 80)
        if self._clock.monotonic() > until:
            return f"{name} did not go: no time was left"
        data = file.read(self._left(until))
        if not 0 < len(data) <= self._file_bytes:
            return f"{name} is too large for it" if data else f"there is no {name}"
        headers = {
            "X-Title": header(f"{message.title}: {name}"),
            "X-Filename": header(name),
            "X-Priority": str(QUIET),
            "Content-Type": file.media_type,
            **self._headers,
        }
        try:
            url = f"{self._server}/{self._topic}"
            _judge(self._http.ask("PUT", url, body=data, headers=headers, timeout=self._left(until)))
        except (Retry, Broken) as error:
            return f"{name} did not go: {error.message}"
        return None


def login_of(token: str | None, user: str | None, password: str | None) -> str | None:
    """The Authorization header of a token, or of a user."""
    if token:
        return f"Bearer {token}"
    if user:
        return "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()
    return None


def header(text: str) -> str:
    """Text as a header may hold it: RFC 2047 where it is not plain."""
    if text.isascii() and text.isprintable():
        return text
    return "=?UTF-8?B?" + base64.b64encode(text.encode()).decode() + "?="


def is_guessable(topic: str) -> bool:
    """Whether a name looks like words and years and not like chance: few changes between figures and letters."""
    kinds = re.sub(r"[^0-9A-Za-z]", "", topic)
    changes = sum(a != b for a, b in zip(map(_kind, kinds), map(_kind, kinds[1:]), strict=False))
    return len(kinds) < 12 or changes < 4


def _kind(letter: str) -> str:
    return "figure" if letter.isdigit() else "capital" if letter.isupper() else "small"


# ---- what the server says --------------------------------------------------------------------------------------------


class _Answer(msgspec.Struct):
    id: str = ""
    code: int = 0
    error: str = ""


def _read(reply: Reply) -> _Answer:
    try:
        return msgspec.json.decode(reply.body, type=_Answer)
    except msgspec.MsgspecError:
        return _Answer(error=text_of(reply.body))


def code_of(reply: Reply) -> int:
    """ntfy's own number for what is wrong, 0 for nothing."""
    return 0 if reply.is_good else _read(reply).code


def said_by(reply: Reply) -> str:
    told = _read(reply)
    words = clean(told.error, 120)
    return f"{words} ({told.code})" if told.code else words


def _id(reply: Reply) -> str:
    """The message's id there: it proves that an ntfy server took it, and not some page on its port."""
    return clean(_read(reply).id, 40)


def _judge(reply: Reply) -> None:
    code = code_of(reply)
    if code in NEVER:
        raise Broken(f"{NEVER[code]}: {said_by(reply)}")
    if reply.is_good:
        if not _read(reply).id:
            raise Broken("what answers there is no ntfy server")
        return
    if code == 42901 and reply.retry_after is None:
        raise Retry(said_by(reply), REFILL)
    judge(reply, said_by(reply))
