"""The channel `ntfy`: a push message by ntfy.sh or your own server, with an Acknowledge button and plots."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import msgspec

from trainmon.alerting.notify.base import Attachment, Broken, Message, Retry, Sent
from trainmon.alerting.notify.channels.http import Http, Reply, host_of, judge, text_of
from trainmon.alerting.notify.message import fitted, is_good_news
from trainmon.lib import Clock, Seconds, SystemClock, clean, shorten_lines
from trainmon.lib.decoding import decoder
from trainmon.model import Channel, Severity

MESSAGE_BYTES = 4_096
"""ntfy's limit: it turns a longer message into a file and shows nothing of it."""
TITLE_BYTES = 250
FILE_MARK = "… the file in the next message has the whole text"
BRIEF_MARK = "… `trainmon-tui status` lists all alerts: this channel has few messages left today"
PUBLIC = "ntfy.sh"
PUBLIC_FILE_BYTES, FILE_BYTES = 2_000_000, 15_000_000
"""The largest attachment: of ntfy.sh without an account, and of a server with its default config."""
FILES = 4
LEAST: Seconds = 0.5
"""The shortest timeout of a request."""
URGENT: Seconds = 8.0
"""How long the files of a critical message may take: the next message waits for them."""
PRIORITY: dict[Severity, int] = {"critical": 5, "warning": 4, "info": 3}
QUIET = 2
"""The priority without a sound: heartbeats, and files that follow their message."""
TAGS: dict[Severity, str] = {"critical": "rotating_light", "warning": "warning", "info": "information_source"}

QUOTA = 42908
"""A daily quota: tomorrow is too late, so the channel counts as broken and the fallback sends at once."""
NEVER = {QUOTA: "its daily quota of messages is used up", 42909: "too many failed logins"}
REFILL: Seconds = 10.0
"""After 42901: a visitor gets one more request every 5 s."""
NO_CALL = frozenset({40032, 40033, 40034, 40035, 40037, 42910})
"""Errors of the phone call: the message can still be pushed."""


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
        self.health = health
        self.server = server.rstrip("/")
        self._topic = topic
        self.headers = {"Authorization": login} if login else {}
        """The login."""
        self._call = call
        self.reply_topic = reply_topic
        self._reply_login = reply_login
        self._pictures = pictures
        self._clock = clock or SystemClock()
        self._http = Http(health.name, self._clock)
        self._file_bytes = PUBLIC_FILE_BYTES if host_of(server) == PUBLIC else FILE_BYTES

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Send the message first, so that it arrives even if its files or its call fail."""
        until = self._clock.monotonic() + timeout
        text, is_whole = fitted(message, MESSAGE_BYTES, BRIEF_MARK if message.is_brief else FILE_MARK)
        fields = self._fields(message, text)
        problems: list[str] = []
        reply = self._publish(fields, until)
        if "call" in fields and code_of(reply) in NO_CALL:
            problems.append(f"the phone call failed: {error_of(reply)}")
            del fields["call"]
            reply = self._publish(fields, until)
        _judge(reply)
        if message.severity == "critical":
            until = min(until, self._clock.monotonic() + URGENT)
        whole = Attachment(name="message.txt", media_type="text/plain", data=message.body.encode())
        files = [
            *([] if is_whole or message.is_brief else [whole]),
            *(message.attachments[:FILES] if self._pictures else ()),
        ]
        refused = [error for file in files if (error := self._attach(file, message, until))]
        # The ID proves that an ntfy server accepted the message, and not some page on its port.
        answer = "; ".join([clean(_read(reply).id, 40), *problems, *refused])
        return Sent(answer, messages=1 + len(files) - len(refused))

    def check(self, timeout: Seconds) -> str | None:
        """Why the replies of phones cannot be read; None when they can, or none are wanted."""
        if not self.reply_topic:
            return None
        url = f"{self.server}/{self.reply_topic}/json?poll=1&since=1s"
        try:
            reply = self._http.request("GET", url, headers=self.headers, timeout=timeout)
        except (Retry, Broken) as error:
            return error.message
        return None if reply.is_good else f"its reply topic cannot be read: {error_of(reply)}"

    def _publish(self, fields: dict[str, Any], until: Seconds) -> Reply:
        body = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
        headers = {"Content-Type": "application/json", **self.headers}
        return self._http.request("POST", f"{self.server}/", body=body, headers=headers, timeout=self._left(until))

    def _left(self, until: Seconds) -> Seconds:
        return max(LEAST, until - self._clock.monotonic())

    def _fields(self, message: Message, text: str) -> dict[str, Any]:
        is_heartbeat = all(notice.kind == "heartbeat" for notice in message.notices)
        tag = "green_heart" if is_heartbeat else TAGS[message.severity]
        actions: list[dict[str, Any]] = []
        if self.reply_topic and message.acknowledge:
            actions.append(
                {
                    "action": "http",
                    "label": "Acknowledge",
                    "url": f"{self.server}/{self.reply_topic}",
                    "method": "POST",
                    "headers": {"Authorization": self._reply_login} if self._reply_login else {},
                    "body": " ".join(["ack", *(f"{alert} {token}" for alert, token in message.acknowledge)]),
                    "clear": True,
                }
            )
        if message.link:
            actions.append({"action": "view", "label": "Open", "url": message.link})
        optional = {
            "click": message.link,
            "actions": actions,
            "call": self._call if message.severity == "critical" else None,
        }
        return {
            "topic": self._topic,
            "title": shorten_lines(message.title, TITLE_BYTES, "…")[0].replace("\n", ""),
            "message": text or message.title,
            "priority": QUIET if is_heartbeat else PRIORITY[message.severity],
            "tags": ["white_check_mark" if is_good_news(message) else tag],
            **{name: value for name, value in optional.items() if value},
        }

    def _attach(self, file: Attachment, message: Message, until: Seconds) -> str | None:
        """Send a file after its message. Return why it was not accepted."""
        name = clean(file.name, 80)
        if self._clock.monotonic() > until:
            return f"{name} was not sent: no time was left"
        data = file.read(self._left(until))
        if not 0 < len(data) <= self._file_bytes:
            return f"{name} is too large for it" if data else f"there is no {name}"
        headers = {
            "X-Title": header(f"{message.title}: {name}"),
            "X-Filename": header(name),
            "X-Priority": str(QUIET),
            "Content-Type": file.media_type,
            **self.headers,
        }
        try:
            url = f"{self.server}/{self._topic}"
            _judge(self._http.request("PUT", url, body=data, headers=headers, timeout=self._left(until)))
        except (Retry, Broken) as error:
            return f"{name} was not sent: {error.message}"
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
    """Whether a name looks like words and years and is not random: it has few changes between digits and letters."""
    name = re.sub(r"[^0-9A-Za-z]", "", topic)
    kinds = ["digit" if letter.isdigit() else "upper" if letter.isupper() else "lower" for letter in name]
    return len(name) < 12 or sum(map(str.__ne__, kinds, kinds[1:])) < 4


# ---- responses of the server -----------------------------------------------------------------------------------------


class _Answer(msgspec.Struct):
    id: str = ""
    code: int = 0
    error: str = ""


def _read(reply: Reply) -> _Answer:
    try:
        return decoder(_Answer).decode(reply.body)
    except msgspec.MsgspecError:
        return _Answer(error=text_of(reply.body))


def code_of(reply: Reply) -> int:
    """ntfy's error code; 0 for a success."""
    return 0 if reply.is_good else _read(reply).code


def error_of(reply: Reply) -> str:
    """ntfy's error message and code."""
    answer = _read(reply)
    message = clean(answer.error, 120)
    return f"{message} ({answer.code})" if answer.code else message


def _judge(reply: Reply) -> None:
    code = code_of(reply)
    if code in NEVER:
        raise Broken(f"{NEVER[code]}: {error_of(reply)}")
    if reply.is_good and not _read(reply).id:
        raise Broken("the server that answers is not ntfy")
    if code == 42901 and reply.retry_after is None:
        raise Retry(error_of(reply), REFILL)
    judge(reply, error_of(reply))
