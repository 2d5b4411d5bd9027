"""What a phone answers: the topic that the Acknowledge button writes to, read on a thread of its own."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import urllib3

from trainmon.alerting.notify.channels.http import AGENT, pool_for
from trainmon.alerting.notify.channels.ntfy import Ntfy
from trainmon.lib import Clock, Seconds, SystemClock
from trainmon.model import AlertRequest, AlertRequested, Event

log = logging.getLogger(__name__)

FILE = "ntfy-replies.json"
SILENT: Seconds = 90.0
"""ntfy says that it is alive every 45 s: a connection that is silent for twice as long is dead."""
CONNECT: Seconds = 10.0
LINE_BYTES = 65_536
AGAIN_FIRST, AGAIN_LAST = 1.0, 60.0
FAREWELL: Seconds = 1.0
ACK = re.compile(r"ack((?: [A-Za-z0-9-]{1,32} [-_A-Za-z0-9]{8,128}){1,16})\s*")


class _Kept(msgspec.Struct):
    """What the file holds."""

    secret: str
    read: dict[str, tuple[str, float]] = {}
    """Of each topic, by a hash of its name, the last answer that was read: its id, and when it was given."""


class Memory:
    """The random value that reply topics are made from, and how far each was read; in a file for us alone.

    Where it cannot be written, buttons of before a restart no longer work: nothing else is lost.
    """

    def __init__(self, directory: Path | None) -> None:
        self._file = directory / FILE if directory is not None else None
        self._changing = threading.Lock()
        self._found: _Kept | None = None

    @property
    def _kept(self) -> _Kept:
        """Begun when it is first needed: without such a channel there is no file."""
        if self._found is None:
            self._found = self._read() or self._begun()
        return self._found

    def topic(self, server: str, topic: str) -> str:
        """A name that nobody can guess, the same after every start."""
        told = f"{self._kept.secret}\n{server}\n{topic}"
        return f"trainmon-{hashlib.sha256(told.encode()).hexdigest()[:32]}"

    def last(self, topic: str) -> tuple[str, float]:
        """The id and the time of the last answer that was read; `all` before the first."""
        with self._changing:
            return self._kept.read.get(_hash(topic), ("all", 0.0))

    def remember(self, topic: str, message: str, at: float) -> None:
        with self._changing:
            self._kept.read[_hash(topic)] = (message, at)
            self._write(self._kept)

    def _read(self) -> _Kept | None:
        if self._file is None:
            return None
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            return None  # the first start, or a file that was torn: it is made anew

    def _begun(self) -> _Kept:
        """A new one; of two programs that start together the first one's, so that both read the same topics."""
        fresh = _Kept(secret=secrets.token_urlsafe(32))
        self._write(fresh, once=True)
        found = self._read()
        if found is None:  # a torn one is in its place
            self._write(fresh)
        return found or fresh

    def _write(self, kept: _Kept, *, once: bool = False) -> None:
        """Whole or not at all; `once`: only where there is none."""
        if self._file is None:
            return
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(msgspec.json.encode(kept))
            if once:
                with contextlib.suppress(FileExistsError):
                    os.link(beside, self._file)
                beside.unlink()
            else:
                beside.replace(self._file)
        except OSError as error:
            log.warning("what phones answer is not remembered: %s", error.strerror)


class Replies:
    """Reads the reply topic of one channel, and submits what is said there."""

    def __init__(
        self, channel: Ntfy, memory: Memory, submit: Callable[[Event], None], clock: Clock | None = None
    ) -> None:
        self._channel = channel
        self._topic = channel.reply_topic or ""
        self._memory = memory
        self._submit = submit
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name=f"replies-{channel.health.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read no more; at once, whatever hangs."""
        self._stopping.set()
        answer = self._answer
        if answer is not None:
            try:
                answer.shutdown()
            except (OSError, ValueError, AttributeError) as error:  # it may just have ended by itself
                log.debug("the replies had ended: %s", type(error).__name__)
        if self._thread.is_alive():
            self._thread.join(FAREWELL)

    def _run(self) -> None:
        again = AGAIN_FIRST
        told: str | None = None
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            trouble = self._follow()
            if trouble != told and trouble is not None and not self._stopping.is_set():
                log.warning("what phones answer to %s cannot be read: %s", self._channel.health.name, trouble)
            told = trouble
            lasted = self._clock.monotonic() - began > SILENT
            again = AGAIN_FIRST if trouble is None or lasted else min(again * 2, AGAIN_LAST)
            self._stopping.wait(again)

    def _follow(self) -> str | None:
        """Read until the connection ends. Returns why there was none, in words without its address."""
        since, _ = self._memory.last(self._topic)
        url = f"{self._channel.server}/{self._topic}/json?since={since}"
        try:
            answer = pool_for(url).request(
                "GET",
                url,
                headers={"User-Agent": AGENT, **self._channel.headers},
                timeout=urllib3.Timeout(connect=CONNECT, read=SILENT),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            self._answer = answer
            try:
                if answer.status != 200:
                    return f"the server says {answer.status}"
                for line in self._lines(answer):
                    self._take(line)
            finally:
                self._answer = None
                answer.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            return None if isinstance(error, urllib3.exceptions.ReadTimeoutError) else type(error).__name__
        return None

    def _lines(self, answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        left = b""
        while not self._stopping.is_set():
            data = answer.read1(LINE_BYTES)
            if not data:
                return
            *whole, left = (left + data).split(b"\n")
            yield from whole
            if len(left) > LINE_BYTES:
                return

    def _take(self, line: bytes) -> None:
        try:
            said = msgspec.json.decode(line, type=_Said)
        except msgspec.MsgspecError:
            return  # no line of ntfy's
        if said.event != "message" or not said.id:
            return
        if said.time >= self._memory.last(self._topic)[1]:  # a server that forgot our place tells all once more
            for order in orders(said.message, said.time):
                self._submit(AlertRequested(order))
        self._memory.remember(self._topic, said.id, max(said.time, self._memory.last(self._topic)[1]))


class _Said(msgspec.Struct):
    event: str = ""
    id: str = ""
    time: float = 0.0
    message: str = ""


def orders(said: str, at: float) -> Iterator[AlertRequest]:
    """The orders in an answer. What is anything else than ours is none: whoever knows the topic may write there."""
    found = ACK.fullmatch(said)
    words = found[1].split() if found else []
    for alert, token in zip(words[::2], words[1::2], strict=True):
        yield AlertRequest(verb="ack", at=at, by="phone", alert=alert, token=token, via="phone")


def _hash(topic: str) -> str:
    return hashlib.sha256(topic.encode()).hexdigest()[:16]
