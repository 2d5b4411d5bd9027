"""A Shell runs commands on one host: this machine (transport.local), or another over SSH (transport.ssh.client)."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from trainmon.lib import CommandFailed, Seconds, TrainmonError
from trainmon.transport.event_loop import EventLoop

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes that run() keeps of one command's output; more is an error, so that a laptop does not swap."""

CHUNK = 65_536
PENDING_LIMIT = 64 * 1024 * 1024
"""Bytes kept for a command that reads none of its input; a command with more is killed."""

AskUser = Callable[[str, str, str, tuple[tuple[str, bool], ...]], tuple[str, ...] | None]
"""ask(host, title, instructions, ((text, echo), …)) → the answers, or None when declined. Blocks."""


class Completed(NamedTuple):
    """A finished command. `status` is the exit status, or minus the signal that ended it."""

    status: int
    stdout: bytes
    stderr: bytes


class Sink(Protocol):
    """Receives the output of a stream, on the event loop's thread. Its methods must be quick and must not raise."""

    def received(self, data: bytes) -> None: ...

    def stderr_received(self, data: bytes) -> None:
        """Bytes of the command's standard error."""

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        """Called once, last: the exit status, or why the stream was lost. Both are None after our own close()."""


class Transit(NamedTuple):
    """What is on its way to a command and back."""

    unsent: int = 0
    """Bytes of its input that wait to be sent."""
    arrived: Seconds = 0.0
    """How long ago the last of the bytes that its sink gets now arrived on this machine."""
    left: Seconds = 0.0
    """How long ago they left the host, at most."""


class Stream(Protocol):
    """A running command."""

    @property
    def transit(self) -> Transit:
        return Transit()

    def write(self, data: bytes) -> None:
        """Queue bytes for its standard input; never blocks. Does nothing once it has ended."""

    def finish(self) -> None:
        """Close its standard input once everything queued is written; its output goes on."""

    def close(self) -> None:
        """Close its standard input and end it soon; never blocks."""


class Shell(Protocol):
    """Runs commands on one host. Commands are argv lists; only SSH joins them into one line, quoted by shlex."""

    host: str

    @property
    def prompted(self) -> bool:
        """Whether a person had to answer a prompt for this connection. If so, it is not redialled automatically."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end.

        Raises:
            CommandFailed: when it cannot start, or takes longer than timeout.
        """

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        """Start a command; its output goes to sink as it comes.

        Raises:
            HostUnreachable: when the connection is lost.
            CommandFailed: when it cannot start.
        """

    def close(self) -> None:
        """Close the connection and everything on it; never blocks."""


class Collected:
    """A Sink that keeps all output, up to OUTPUT_LIMIT, for a thread that waits for the end."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.status: int | None = None
        self.error: TrainmonError | None = None
        self.done = threading.Event()
        self.too_long = False

    def received(self, data: bytes) -> None:
        self._keep(self.stdout, data)

    def stderr_received(self, data: bytes) -> None:
        self._keep(self.stderr, data)

    def _keep(self, kept: bytearray, data: bytes) -> None:
        if len(self.stdout) + len(self.stderr) + len(data) > OUTPUT_LIMIT:
            self.too_long = True
            self.done.set()
        else:
            kept += data

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.status, self.error = status, error
        self.done.set()


def collect(shell: Shell, argv: Sequence[str], stdin: bytes, timeout: Seconds) -> Completed:
    """Run a command through a stream to its end.

    Raises:
        CommandFailed: when it does not end in time, or prints too much.
    """
    collected = Collected()
    stream = shell.stream(argv, collected)
    if stdin:
        stream.write(stdin)
    stream.finish()
    if not collected.done.wait(timeout):
        stream.close()
        raise CommandFailed(f"{shell.host}: {argv[0]} did not end in {timeout:g}s")
    if collected.too_long:
        stream.close()
        raise CommandFailed(f"{shell.host}: {argv[0]} printed more than {OUTPUT_LIMIT // 1024**2} MiB")
    if collected.error is not None:
        raise collected.error
    if collected.status is None:
        raise CommandFailed(f"{shell.host}: {argv[0]} ended without an exit status")
    return Completed(collected.status, bytes(collected.stdout), bytes(collected.stderr))


class CommandStream(ABC):
    """What local and remote streams share: queued input, and an end in two steps.

    `write`, `finish`, `close` and `kill` may be called from any thread and never block.
    """

    def __init__(self, loop: EventLoop, sink: Sink) -> None:
        self._loop = loop
        self._sink = sink
        self._pending = bytearray()
        self._finishing = False
        self._closed = False
        self._ended = False
        self._times: tuple[Seconds, Seconds] = (0.0, 0.0)

    @property
    def transit(self) -> Transit:
        return Transit(len(self._pending), *self._times)

    def write(self, data: bytes) -> None:
        """Queue bytes for its standard input."""
        self._loop.call_soon(lambda: self._queue(data))

    def finish(self) -> None:
        """Close its standard input once everything queued is written."""
        self._loop.call_soon(self._finish)

    def close(self) -> None:
        """Close its standard input; kill the command if it does not end soon."""
        if not self._closed:
            self._closed = True
            self.finish()
            self._kill_later()

    @abstractmethod
    def kill(self) -> None:
        """End it now."""

    @abstractmethod
    def _kill_later(self) -> None:
        """Kill it, if it has not ended by then."""

    # ---- on the event loop's thread ----

    def _queue(self, data: bytes) -> None:
        if self._finishing or self._ended:
            return
        self._pending += data
        self._flush()
        if len(self._pending) > PENDING_LIMIT:
            self._pending.clear()
            self.kill()

    def _finish(self) -> None:
        self._finishing = True
        self._flush()

    @abstractmethod
    def _flush(self) -> None:
        """Write what the command takes now; close its standard input when all is written and `finish` was called."""
