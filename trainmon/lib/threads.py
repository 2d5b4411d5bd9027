"""Threads that stop; calls and child processes with a deadline, whatever hangs; and shared decoders of JSON.

A call runs on a thread that is abandoned when it takes too long: a socket's timeout bounds one read, not all of them,
and name resolution has none at all. A child process is killed with its whole session.

msgspec learns the fields of a type at its first use. A thread that decodes the type in the meantime reads a null
pointer, and the process dies (msgspec 0.22; tests/trainmon/lib/test_decoding.py shows it).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from trainmon.lib.clock import Seconds

# ---- a thread that works in the background until it is stopped -------------------------------------------------------


class Background(ABC):
    """What a thread does from `start` to `stop`. It never holds up the end of the program."""

    stop_timeout: ClassVar[Seconds] = 1.0
    """How long `stop` waits for the end of the thread."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which may call this itself."""
        self._stopping.set()
        self._interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self.stop_timeout)

    def _interrupt(self) -> None:  # noqa: B027 # a thread that waits for nothing else than `_stopping` has none
        """End what the thread waits for."""

    @abstractmethod
    def _run(self) -> None:
        """The work: it ends soon after `_stopping` is set."""


# ---- calls and child processes with a deadline, whatever hangs -------------------------------------------------------

Answer = TypeVar("Answer")

MAX_ABANDONED = 4
"""The maximum number of abandoned calls that still hang. No call is made beyond it until one of them ends."""

OUTPUT_BYTES = 16_000_000
"""The maximum size of a child's output. The rest is dropped."""

END_TIMEOUT: Seconds = 1.0
"""The time that a killed child has to disappear."""


class DeadlineExceeded(Exception):
    """The call did not end in time. It may still end later."""


class DeadlineRunner(Generic[Answer]):
    """Makes one call at a time, each with a deadline."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._abandoned: list[threading.Thread] = []

    def call(self, function: Callable[[], Answer], timeout: Seconds) -> Answer:
        """Return the result of the function.

        Raises:
            DeadlineExceeded: when it takes longer, or too many earlier calls still hang.
            Exception: what the function raises.
        """
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= MAX_ABANDONED:
            raise DeadlineExceeded
        result: Future[Answer] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:  # the caller handles every error
                result.set_exception(error)

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        thread.start()
        if not wait([result], timeout).done:
            self._abandoned.append(thread)
            raise DeadlineExceeded
        return result.result()


class ChildResult(msgspec.Struct, frozen=True):
    """The exit status and the output."""

    status: int
    """A negative status is the signal that ended the child."""
    output: bytes
    errors: bytes


class ChildRunner:
    """Runs one child process at a time, from input bytes to output bytes. Secrets belong in its standard input, never
    in its arguments."""

    def __init__(self, name: str) -> None:
        self._runner: DeadlineRunner[ChildResult] = DeadlineRunner(f"child-{name}")

    def run(
        self, argv: Sequence[str], stdin: bytes, timeout: Seconds, environ: Mapping[str, str] | None = None
    ) -> ChildResult:
        """Run a command and return its result. Its whole session is killed at the end.

        Raises:
            DeadlineExceeded: when it takes longer.
            OSError: when it cannot be started.
        """

        def run() -> ChildResult:
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                list(argv), stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True, close_fds=True
            )
            try:
                output, errors = process.communicate(stdin, timeout=timeout)
            except subprocess.TimeoutExpired:
                raise DeadlineExceeded from None
            finally:
                kill_session(process)
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream is not None:
                        with contextlib.suppress(OSError):
                            stream.close()
            return ChildResult(process.returncode, output[:OUTPUT_BYTES], errors[:OUTPUT_BYTES])

        return self._runner.call(run, timeout + END_TIMEOUT)  # starting a program on a hanging disk may not return


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its whole session: a grandchild may still run."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT)


# ---- decoders of JSON that threads may share -------------------------------------------------------------------------

Kind = TypeVar("Kind")

_lock = threading.Lock()
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[Kind]) -> msgspec.json.Decoder[Kind]:
    """The decoder of a type. It is built once, by one thread at a time."""
    with _lock:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]
