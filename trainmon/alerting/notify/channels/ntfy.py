"""The channel `ntfy`: a push message by ntfy.sh or your own server, with an Acknowledge button and plots."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import urllib3

from trainmon.alerting.notify.channels.http import AGENT, Http, Reply, host_of, judge, pool_for, text_of
from trainmon.alerting.notify.message import Attachment, Broken, Message, Retry, Sent, fitted, is_good_news
from trainmon.lib import Clock, Seconds, SystemClock, clean, shorten_lines, write_private
from trainmon.lib.threads import Background, decoder
from trainmon.model import AlertRequest, AlertRequested, Channel, Event, Severity

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
        if "call" in fields and _read(reply).code in NO_CALL:
            problems.append(f"the phone call failed: {_read(reply)}")
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

    def check(self, timeout: Seconds) -> None:
        """Find out whether the replies of phones can be read, if they are wanted.

        Raises: Retry, Broken: when they cannot.
        """
        url = f"{self.server}/{self.reply_topic}/json?poll=1&since=1s"
        if (
            self.reply_topic
            and not (reply := self._http.request("GET", url, headers=self.headers, timeout=timeout)).is_good
        ):
            raise Broken(
                f"its reply topic (of the button Acknowledge) cannot be read: {reply.status} {_read(reply)}; "
                "`acknowledge = false` needs no reply topic"
            )

    def _publish(self, fields: dict[str, Any], until: Seconds) -> Reply:
        body = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
        headers = {"Content-Type": "application/json", **self.headers}
        return self._http.request("POST", f"{self.server}/", body=body, headers=headers, timeout=self._left(until))

    def _left(self, until: Seconds) -> Seconds:
        return max(LEAST, until - self._clock.monotonic())

    def _fields(self, message: Message, text: str) -> dict[str, Any]:
        is_heartbeat = all(notice.kind == "heartbeat" for notice in message.notices)
        tag = "green_heart" if is_heartbeat else TAGS[message.severity]
        acknowledge = {
            "action": "http",
            "label": "Acknowledge",
            "url": f"{self.server}/{self.reply_topic}",
            "method": "POST",
            "headers": {"Authorization": self._reply_login} if self._reply_login else {},
            "body": " ".join(["ack", *(f"{alert} {token}" for alert, token in message.acknowledge)]),
            "clear": True,
        }
        actions = [
            *([acknowledge] if self.reply_topic and message.acknowledge else []),
            *([{"action": "view", "label": "Open", "url": message.link}] if message.link else []),
        ]
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
    """ntfy's error code; 0 for a success."""
    error: str = ""

    def __str__(self) -> str:
        message = clean(self.error, 120)
        return f"{message} ({self.code})" if self.code else message


def _read(reply: Reply) -> _Answer:
    try:
        return decoder(_Answer).decode(reply.body)
    except msgspec.MsgspecError:
        return _Answer(error=text_of(reply.body))


def _judge(reply: Reply) -> None:
    answer = _read(reply)
    if answer.code in NEVER:
        raise Broken(f"{NEVER[answer.code]}: {answer}")
    if reply.is_good and not answer.id:
        raise Broken("the server that answers is not ntfy")
    if answer.code == 42901 and reply.retry_after is None:
        raise Retry(str(answer), REFILL)
    judge(reply, str(answer))


# ---- reads the topic that the Acknowledge button of a phone writes to, on its own thread -----------------------------

log = logging.getLogger(__name__)

FILE = "ntfy-replies.json"
SILENT: Seconds = 90.0
"""ntfy sends a keepalive every 45 s: a connection that is silent for twice as long is dead."""
CONNECT: Seconds = 10.0
LINE_BYTES = 65_536
"""A longer line is no reply of ours: it is skipped."""
POSITION = re.compile(rb'\{\s*"id":\s*"([-_A-Za-z0-9]{1,64})",\s*"time":\s*(\d{1,12}(?:\.\d+)?),')
"""The beginning of a line of ntfy."""
PAUSE_FIRST, PAUSE_LAST = 1.0, 60.0
ACK = re.compile(r"ack((?: [A-Za-z0-9-]{1,32} [-_A-Za-z0-9]{8,128}){1,16})\s*")


class _Contents(msgspec.Struct):
    """The contents of the file."""

    secret: str
    read: dict[str, tuple[str, float]] = {}
    """The ID and the time of the last reply that was read of each topic, by a hash of its name."""


class Memory:
    """A private file with the secret that makes reply topics, and how far each was read.

    If it cannot be written, buttons of messages before a restart stop working.
    """

    def __init__(self, directory: Path | None) -> None:
        self._file = directory / FILE if directory is not None else None
        self._changing = threading.Lock()
        self._found: _Contents | None = None

    @property
    def _contents(self) -> _Contents:
        """Created when it is first needed: without such a channel there is no file. Of two programs that start
        together the first one's, so that both read the same topics."""
        self._found = self._found or self._read()
        if self._found is None:
            fresh = _Contents(secret=secrets.token_urlsafe(32))
            self._write(fresh, once=True)
            self._found = self._read()
            if self._found is None:  # the file is damaged
                self._write(fresh)
                self._found = fresh
        return self._found

    def topic(self, server: str, topic: str) -> str:
        """A name that nobody can guess, the same after every start."""
        source = f"{self._contents.secret}\n{server}\n{topic}"
        return f"trainmon-{hashlib.sha256(source.encode()).hexdigest()[:32]}"

    def last(self, topic: str) -> tuple[str, float]:
        """The ID and the time of the last reply that was read; `all` before the first."""
        with self._changing:
            return self._contents.read.get(_hash(topic), ("all", 0.0))

    def remember(self, topic: str, message: str, at: float) -> None:
        """Write that this reply was read."""
        with self._changing:
            self._contents.read[_hash(topic)] = (message, at)
            self._write(self._contents)

    def _read(self) -> _Contents | None:
        try:
            return decoder(_Contents).decode(self._file.read_bytes()) if self._file is not None else None
        except (OSError, msgspec.MsgspecError):
            return None  # the first start, or a damaged file

    def _write(self, contents: _Contents, *, once: bool = False) -> None:
        """Replace the file; with `once`, only if there is none."""
        if self._file is None:
            return
        try:
            write_private(self._file, msgspec.json.encode(contents), once=once)
        except OSError as error:
            log.warning("replies of phones cannot be remembered: %s", error.strerror)


class Replies(Background):
    """Reads the reply topic of one channel, and submits its requests."""

    def __init__(
        self, channel: Ntfy, memory: Memory, submit: Callable[[Event], None], clock: Clock | None = None
    ) -> None:
        self._channel = channel
        self._topic = channel.reply_topic or ""
        self._memory = memory
        self._submit = submit
        self._clock = clock or SystemClock()
        self._response: urllib3.BaseHTTPResponse | None = None
        super().__init__(f"replies-{channel.health.name}")

    def _interrupt(self) -> None:
        """Stop reading at once."""
        if (response := self._response) is not None:
            try:
                response.shutdown()
            except (OSError, ValueError, AttributeError) as error:  # it may just have ended by itself
                log.debug("the replies had ended: %s", type(error).__name__)

    def _run(self) -> None:
        pause = PAUSE_FIRST
        reported: str | None = None
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            error = self._follow()
            if error != reported and error is not None and not self._stopping.is_set():
                log.warning("replies of phones to %s cannot be read: %s", self._channel.health.name, error)
            reported = error
            is_new = error is None or self._clock.monotonic() - began > SILENT
            pause = PAUSE_FIRST if is_new else min(pause * 2, PAUSE_LAST)
            self._stopping.wait(pause)

    def _follow(self) -> str | None:
        """Read until the connection ends. Return why there was none, without its address."""
        url = f"{self._channel.server}/{self._topic}/json?since={self._memory.last(self._topic)[0]}"
        try:
            self._response = response = pool_for(url).request(
                "GET",
                url,
                headers={"User-Agent": AGENT, **self._channel.headers},
                timeout=urllib3.Timeout(connect=CONNECT, read=SILENT),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                if response.status != 200:
                    return f"the server answers {response.status}"
                left, is_skipping = b"", False
                while not self._stopping.is_set() and (data := response.read1(LINE_BYTES)):
                    *lines, left = (left + data).split(b"\n")
                    for line in lines[is_skipping:]:
                        self._handle(line)
                    is_skipping = is_skipping and not lines
                    if is_skipping:
                        left = b""
                    elif len(left) > LINE_BYTES:
                        self._skip(left)
                        left, is_skipping = b"", True
            finally:
                self._response = None
                response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            return None if isinstance(error, urllib3.exceptions.ReadTimeoutError) else type(error).__name__
        return None

    def _skip(self, beginning: bytes) -> None:
        """Remember the position of a line that is too long: the next connection begins after it."""
        log.warning("a reply to %s is longer than %d KiB: it is skipped", self._channel.health.name, LINE_BYTES // 1024)
        if (found := POSITION.match(beginning)) is not None:
            self._remember(found[1].decode(), float(found[2]))

    def _remember(self, name: str, at: float) -> None:
        self._memory.remember(self._topic, name, max(at, self._memory.last(self._topic)[1]))

    def _handle(self, line: bytes) -> None:
        try:
            reply = decoder(_Reply).decode(line)
        except msgspec.MsgspecError:
            return  # not a line of ntfy
        if reply.event != "message" or not reply.id:
            return
        if reply.time >= self._memory.last(self._topic)[1]:  # a server that forgot the position sends all once more
            for request in requests(reply.message, reply.time):
                self._submit(AlertRequested(request))
        self._remember(reply.id, reply.time)


class _Reply(msgspec.Struct):
    event: str = ""
    id: str = ""
    time: float = 0.0
    message: str = ""


def requests(text: str, at: float) -> Iterator[AlertRequest]:
    """The requests in a reply. Any other text has none: everybody who knows the topic may write there."""
    found = ACK.fullmatch(text)
    words = found[1].split() if found else []
    for alert, token in zip(words[::2], words[1::2], strict=True):
        yield AlertRequest(verb="ack", at=at, by="phone", alert=alert, token=token, via="phone")


def _hash(topic: str) -> str:
    return hashlib.sha256(topic.encode()).hexdigest()[:16]
