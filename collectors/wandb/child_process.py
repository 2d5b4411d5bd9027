"""The client of the child process that runs the W&B SDK.

The child starts with the first request. When an answer is overdue, it is killed with its own children. It ends when
this process ends, because its standard input ends.
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
from trainmon.lib import Seconds, TrainmonError, clean, last_line
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalStream

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "collectors.wandb.child")
"""-P: nothing is imported from the working directory, which may contain a wandb.py."""

ANSWER_TIMEOUT: Seconds = 25.0
"""The time limit for one request. After 22 s the child itself answers that the SDK hangs, and why, if it knows."""

GRACE_PERIOD: Seconds = 0.3
"""The time that the child has to end by itself before it is killed. It needs milliseconds."""

POLL_EVERY: Seconds = 1.0
"""The interval of checks whether the child has ended: other processes may hold its pipes open."""

LAST_OUTPUT_DELAY: Seconds = 0.05
"""The child's last output may arrive after its end."""

START_TIMEOUT: Seconds = 0.3
"""The time that close() waits for a child that is just being started: its program may be on a disk that hangs."""

AnswerType = TypeVar("AnswerType", bound=Answer)

ErrorKind = FailureKind | Literal["gone"]
"""gone: the child has ended, or cannot be started."""


class WandbError(TrainmonError):
    """W&B, or the child process, gave no usable answer."""

    def __init__(self, message: str, *, kind: ErrorKind, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class WandbClient(Protocol):
    """Answers requests about W&B."""

    def query(self, request: AnyRequest, answer_type: type[AnswerType]) -> AnswerType:
        """The answer, which must be of this type.

        Raises:
            WandbError: when there is none.
        """

    def close(self) -> None:
        """End everything at once, from any thread; an open request fails."""


class ChildClient:
    """Sends requests to the child, one at a time. `query` is called on one thread, `close` on any."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        argv: Sequence[str] = CHILD,
        timeout: Seconds = ANSWER_TIMEOUT,
    ) -> None:
        self._environ = environ
        self._argv = list(argv)
        self.timeout = timeout
        """The time limit for one answer."""
        self._lock = threading.Lock()
        self._loop: EventLoop | None = None
        self._session: ChildSession | None = None
        self._closed = False
        self._last_id = 0

    def query(self, request: AnyRequest, answer_type: type[AnswerType]) -> AnswerType:
        """The answer, which must be of this type.

        Raises:
            WandbError: when there is none.
        """
        with self._lock:
            if self._closed:
                raise WandbError("the W&B client is closed", kind="gone")
            if self._session is None or self._session.has_ended:
                self._session = self._start()
            session = self._session
        self._last_id += 1
        session.send(encode(msgspec.structs.replace(request, id=self._last_id)))
        answer = session.receive(self._last_id, self.timeout)
        if isinstance(answer, RequestFailed):
            raise WandbError(answer.message, kind=answer.kind, hint=answer.hint or "")
        if not isinstance(answer, answer_type):
            session.kill()
            raise WandbError(f"the W&B child answered {type(answer).__name__} to {type(request).__name__}", kind="sdk")
        return answer

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
            raise WandbError(f"the W&B child cannot be started: {error}", kind="gone") from error
        session = ChildSession(self._loop, process)
        if self._closed:  # closed meanwhile
            session.kill()
            raise WandbError("the W&B client is closed", kind="gone")
        return session

    def close(self) -> None:
        """End the child and all that it started; takes less than a second."""
        self._closed = True
        waited = self._lock.acquire(timeout=START_TIMEOUT)
        session, loop = self._session, self._loop
        if waited:
            self._lock.release()
        if session is not None:
            session.close()
        if loop is not None:
            loop.stop()


class ChildSession:
    """A running child; the Sink of its stream."""

    def __init__(self, loop: EventLoop, process: subprocess.Popen[bytes]) -> None:
        self._answers: queue.SimpleQueue[AnyAnswer | None] = queue.SimpleQueue()
        """Its answers; None at the end."""
        self._rest = bytearray()
        self._last_error = ""
        self._directory: str | None = None
        self._core_pid: int | None = None
        self._ended = threading.Event()
        self._process = process
        self._stream = LocalStream(loop, process, self, lambda _: None)
        self._stream.start()

    @property
    def has_ended(self) -> bool:
        if self._process.poll() is not None and not self._ended.is_set():
            self.kill()  # wandb-core may hold our pipes open
        return self._ended.is_set()

    def send(self, data: bytes) -> None:
        self._stream.write(data)

    def receive(self, number: int, timeout: Seconds) -> AnyAnswer:
        """The answer to this request. The child is killed when it does not answer in time.

        Raises:
            WandbError: when there is no answer, or one to another request.
        """
        until = time.monotonic() + timeout
        while (answer := self._next(until)) is None and not self.has_ended:
            if time.monotonic() >= until:
                self.kill()
                raise WandbError(f"the W&B client gave no answer in {timeout:g}s and was killed", kind="slow")
        answer = answer or self._next(time.monotonic() + LAST_OUTPUT_DELAY)
        if answer is None:
            why = f": {self._last_error}" if self._last_error else ""
            raise WandbError(f"the W&B client has ended{why}", kind="gone")
        if answer.id not in (number, 0):  # 0: it could not read the request
            self.kill()
            raise WandbError("the W&B client answered another request", kind="sdk")
        return answer

    def _next(self, until: Seconds) -> AnyAnswer | None:
        """The next answer; None if there is none in time, or at the end."""
        try:
            return self._answers.get(timeout=max(0.0, min(POLL_EVERY, until - time.monotonic())))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Let the child end by itself; kill it if it does not."""
        self._stream.finish()
        if not self._ended.wait(GRACE_PERIOD):
            self.kill()
        self._answers.put(None)

    def kill(self) -> None:
        """Kill the child and wandb-core, which has a session of its own."""
        self._stream.kill()
        self._clean_up()

    # ---- on the event loop's thread ----

    def received(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0], self._rest = bytes(self._rest) + lines[0], bytearray()
        self._rest += rest
        if len(self._rest) > LONGEST_LINE:
            self._last_error = "one of its lines is too long"
            self.kill()
        for line in lines:
            try:
                answer = decode_answer(line)
            except (msgspec.DecodeError, ValueError) as error:
                self._last_error = f"one of its lines cannot be read: {clean(str(error), 200)}"
                self.kill()
                continue
            match answer:
                case ChildStarted(directory=directory):
                    self._directory = directory
                case CoreStarted(pid=pid):
                    self._core_pid = pid
                case _:
                    self._answers.put(answer)

    def stderr_received(self, data: bytes) -> None:
        self._last_error = last_line(data) or self._last_error

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        if status:
            log.info("the W&B child ended with status %s: %s", status, self._last_error)
        self._clean_up()
        self._answers.put(None)

    def _clean_up(self) -> None:
        """Remove what a killed child leaves: wandb-core, and the directory of both."""
        self._ended.set()
        core_pid, self._core_pid = self._core_pid, None
        if core_pid is not None and core_pid > 1:
            with contextlib.suppress(OSError):  # it has already ended
                os.killpg(core_pid, signal.SIGKILL)
        if self._directory is not None and Path(self._directory).name.startswith("trainmon-"):
            shutil.rmtree(self._directory, ignore_errors=True)
