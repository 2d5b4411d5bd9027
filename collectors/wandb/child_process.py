"""Our end of the child that speaks with W&B: started with the first question, killed with all that it started when an
answer is overdue. It ends by itself when we are gone, because its standard input ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from collectors.wandb.wire import (
    LONGEST_LINE,
    Answer,
    AnyAnswer,
    AnyRequest,
    ChildStarted,
    CoreStarted,
    FailureKind,
    RequestFailed,
    decode_answer,
    encode,
)
from trainmon.lib import Seconds, TrainmonError, clean, scrub
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.local import LocalStream

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "collectors.wandb.child")
"""-P: nothing is imported from the working directory, where a training may have left a wandb.py."""

ANSWER_AT_MOST: Seconds = 25.0
"""For one question: the child itself says after 23 s that the SDK hangs, and why, as far as it knows."""

FAREWELL: Seconds = 0.3
"""So long the child has to end by itself, which takes it some milliseconds, before it is killed."""

LOOK_EVERY: Seconds = 1.0
"""How soon it is noticed that the child has died while others hold its pipes."""

SETTLE: Seconds = 0.05
"""Its last words may still be on their way when it has died."""

START_AT_MOST: Seconds = 0.3
"""How long a child that is just being started is waited for at the end: its program may lie on a disk that hangs."""

AnswerType = TypeVar("AnswerType", bound=Answer)

ErrorKind = FailureKind | Literal["gone"]
"""gone: the child itself has ended, or cannot be started."""


class WandbError(TrainmonError):
    """W&B, or the child that speaks with it, gave no usable answer."""

    def __init__(self, message: str, *, kind: ErrorKind, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class WandbClient(Protocol):
    """Who answers questions about W&B."""

    def ask(self, asked: AnyRequest, wanted: type[AnswerType]) -> AnswerType:
        """One answer of the kind that is wanted. Raises WandbFailed."""

    def close(self) -> None:
        """End all at once, from any thread; what is being asked fails."""


class ChildClient:
    """The child as somebody to ask, one question at a time. `ask` is called on one thread, `close` on any."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        argv: Sequence[str] = CHILD,
        within: Seconds = ANSWER_AT_MOST,
    ) -> None:
        self._environ = environ
        self._argv = list(argv)
        self.within = within
        """So long one answer may take."""
        self._changing = threading.Lock()
        self._loop: EventLoop | None = None
        self._talk: ChildSession | None = None
        self._closed = False
        self._asked = 0

    def ask(self, asked: AnyRequest, wanted: type[AnswerType]) -> AnswerType:
        """One answer of the kind that is wanted. Raises WandbFailed."""
        talk = self._begun()
        self._asked += 1
        talk.say(encode(msgspec.structs.replace(asked, id=self._asked)))
        told = talk.hear(self._asked, self.within)
        if isinstance(told, RequestFailed):
            raise WandbError(told.words, kind=told.kind, hint=told.hint or "")
        if not isinstance(told, wanted):
            talk.kill()
            raise WandbError(f"W&B's child answered {type(told).__name__} to {type(asked).__name__}", kind="sdk")
        return told

    def _begun(self) -> ChildSession:
        """The child that runs, or a new one."""
        with self._changing:
            if self._closed:
                raise WandbError("W&B is asked no more", kind="gone")
            if self._talk is None or self._talk.is_over:
                self._talk = self._start()
            return self._talk

    def _start(self) -> ChildSession:
        if self._loop is None:
            self._loop = EventLoop()
            self._loop.start()
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                self._argv, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(self._environ), start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise WandbError(f"W&B's child cannot be started: {error}", kind="gone") from error
        talk = ChildSession(self._loop, process)
        if self._closed:  # meanwhile: nobody has waited for it
            talk.kill()
            raise WandbError("W&B is asked no more", kind="gone")
        return talk

    def close(self) -> None:
        """End the child and all that it started; under a second, whatever hangs."""
        self._closed = True
        waited = self._changing.acquire(timeout=START_AT_MOST)
        talk, loop = self._talk, self._loop
        if waited:
            self._changing.release()
        if talk is not None:
            talk.close()
        if loop is not None:
            loop.stop()


class ChildSession:
    """One child from its start to its end: the Sink of its stream."""

    def __init__(self, loop: EventLoop, process: subprocess.Popen[bytes]) -> None:
        self._heard: queue.SimpleQueue[AnyAnswer | None] = queue.SimpleQueue()
        """What it answered; None once it is over."""
        self._rest = bytearray()
        self._complaint = ""
        self._directory: str | None = None
        self._sidecar: int | None = None
        self._over = threading.Event()
        self._process = process
        self._stream = LocalStream(loop, process, self, lambda _: None)
        self._stream.start()

    @property
    def is_over(self) -> bool:
        if self._process.poll() is not None and not self._over.is_set():
            self.kill()  # what it has left: its sidecar may hold our pipes open
        return self._over.is_set()

    def say(self, data: bytes) -> None:
        self._stream.write(data)

    def hear(self, number: int, within: Seconds) -> AnyAnswer:
        """The answer to this question; who gives none in time is killed. Raises WandbFailed."""
        until = time.monotonic() + within
        told = self._next(until)
        while told is None and not self.is_over:
            if time.monotonic() >= until:
                self.kill()
                raise WandbError(f"W&B's client gave no answer in {within:g} s, and was killed", kind="slow")
            told = self._next(until)
        told = told or self._next(time.monotonic() + SETTLE)
        if told is None:
            said = f": {self._complaint}" if self._complaint else ""
            raise WandbError(f"W&B's client has ended{said}", kind="gone")
        if told.id not in (number, 0):  # 0: a question that it could not read
            self.kill()
            raise WandbError("W&B's client answered another question than was asked", kind="sdk")
        return told

    def _next(self, until: Seconds) -> AnyAnswer | None:
        """What it says next; None where that is nothing for a while, or it is over."""
        try:
            return self._heard.get(timeout=max(0.0, min(LOOK_EVERY, until - time.monotonic())))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Have it end by itself, which takes all along that it started; if it does not, end it."""
        self._stream.finish()
        if not self._over.wait(FAREWELL):
            self.kill()
        self._heard.put(None)

    def kill(self) -> None:
        """End it now, with wandb-core, which is in a session of its own."""
        self._stream.kill()
        self._bury()

    # ---- on the event loop's thread ----

    def received(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0], self._rest = bytes(self._rest) + lines[0], bytearray()
        self._rest += rest
        if len(self._rest) > LONGEST_LINE:
            self._complaint = "a line of it is too long"
            self.kill()
        for one in lines:
            self._read(one)

    def _read(self, said: bytes) -> None:
        try:
            told = decode_answer(said)
        except (msgspec.DecodeError, ValueError) as error:
            self._complaint = f"a line of it cannot be read: {clean(str(error), 200)}"
            self.kill()
            return
        if isinstance(told, ChildStarted):
            self._directory = told.directory
        elif isinstance(told, CoreStarted):
            self._sidecar = told.pid
        else:
            self._heard.put(told)

    def stderr_received(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self._complaint = scrub(clean(lines[-1], 300))

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        if status:
            log.info("W&B's child ended with status %s: %s", status, self._complaint)
        self._bury()
        self._heard.put(None)

    def _bury(self) -> None:
        """What a child that was killed has left: its sidecar, and the directory that both wrote to."""
        self._over.set()
        sidecar, self._sidecar = self._sidecar, None
        if sidecar is not None and sidecar > 1:
            with contextlib.suppress(OSError):  # it has ended as well
                os.killpg(sidecar, signal.SIGKILL)
        if self._directory is not None and Path(self._directory).name.startswith("trainmon-"):
            shutil.rmtree(self._directory, ignore_errors=True)  # once more at its end: what is killed may still write
