"""Reads the topic that the Acknowledge button of a phone writes to, on its own thread."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import urllib3

from trainmon.alerting.notify.channels.http import AGENT, pool_for
from trainmon.alerting.notify.channels.ntfy import Ntfy
from trainmon.lib import Clock, Seconds, SystemClock, write_private
from trainmon.lib.decoding import decoder
from trainmon.model import AlertRequest, AlertRequested, Event

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


class Replies:
    """Reads the reply topic of one channel, and submits its requests."""

    def __init__(
        self, channel: Ntfy, memory: Memory, submit: Callable[[Event], None], clock: Clock | None = None
    ) -> None:
        self._channel = channel
        self._topic = channel.reply_topic or ""
        self._memory = memory
        self._submit = submit
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name=f"replies-{channel.health.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop reading at once."""
        self._stopping.set()
        if (response := self._response) is not None:
            try:
                response.shutdown()
            except (OSError, ValueError, AttributeError) as error:  # it may just have ended by itself
                log.debug("the replies had ended: %s", type(error).__name__)
        if self._thread.is_alive():
            self._thread.join(1.0)

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
