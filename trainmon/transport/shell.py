"""Shells: what runs a command somewhere, and the one of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple, Protocol

from trainmon.lib import CommandFailed, Seconds, TrainmonError
from trainmon.transport.event_loop import WRITE, EventLoop, pipes_of

# ---- A Shell runs commands on one host -------------------------------------------------------------------------------

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes that run() keeps of one command's output; more is an error, so that a laptop does not swap."""

CHUNK = 65_536
PENDING_LIMIT = 64 * 1024 * 1024
"""Bytes kept for a command that reads none of its input; a command with more is killed."""

LOGIN_SHELL = ("bash", "-lc", 'exec "$@"', "bash")
"""Before the words of a command: it gets the environment of a login."""

AskUser = Callable[[str, str, str, tuple[tuple[str, bool], ...], Callable[[], bool]], tuple[str, ...] | None]
"""ask(host, title, instructions, ((text, echo), …), is_open) → the answers; None when declined, or when `is_open` says
that the host no longer waits for them. Blocks."""


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


class Shell(Protocol):
    """Runs commands on one host. Commands are argv lists; only SSH joins them into one line, quoted by shlex."""

    host: str

    @property
    def prompted(self) -> bool:
        """Whether a person had to answer a prompt for this connection. If so, it is not redialled automatically."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end.

        Raises:
            CommandFailed: when it cannot start, does not end in time, or prints too much.
        """
        collected = Collected()
        stream = self.stream(argv, collected)
        if stdin:
            stream.write(stdin)
        stream.finish()
        if not collected.done.wait(timeout):
            stream.close()
            raise CommandFailed(f"{self.host}: {argv[0]} did not end in {timeout:g}s")
        if collected.too_long:
            stream.close()
            raise CommandFailed(f"{self.host}: {argv[0]} printed more than {OUTPUT_LIMIT // 1024**2} MiB")
        if collected.error is not None:
            raise collected.error
        if collected.status is None:
            raise CommandFailed(f"{self.host}: {argv[0]} ended without an exit status")
        return Completed(collected.status, bytes(collected.stdout), bytes(collected.stderr))

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        """Start a command; its output goes to sink as it comes.

        Raises:
            HostUnreachable: when the connection is lost.
            CommandFailed: when it cannot start.
        """

    def close(self) -> None:
        """Close the connection and everything on it; never blocks."""


class CommandStream(ABC):
    """What local and remote streams share: queued input, and an end in two steps.

    `write`, `finish`, `close` and `kill` may be called from any thread and never block.
    """

    def __init__(self, loop: EventLoop, sink: Sink) -> None:
        self._loop = loop
        self._sink = sink
        self._pending = bytearray()
        self._finishing = False
        self.is_closed = False
        """Whether `close` or `kill` was called."""
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
        if not self.is_closed:
            self.is_closed = True
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


# ---- commands on this machine ----------------------------------------------------------------------------------------

TERM_AFTER, KILL_AFTER = 1.0, 2.0
"""A closed command has a second to see the end of its input, and one more for SIGTERM."""

ABANDON_AFTER = 1.0
"""A grandchild in a session of its own may hold our pipes for ever: they are closed this long after the kill."""


class LocalStream(CommandStream):
    """A running command of this machine."""

    def __init__(
        self, loop: EventLoop, process: subprocess.Popen[bytes], sink: Sink, on_end: Callable[[LocalStream], None]
    ) -> None:
        super().__init__(loop, sink)
        self._process = process
        self._on_end = on_end
        self._wait = 0.005
        self._stdin, *outputs = pipes_of(process)
        self._outputs = dict(zip(outputs, (sink.received, sink.stderr_received), strict=True))
        """The output pipes that are open, and who gets their bytes."""
        for pipe in (self._stdin, *self._outputs):
            os.set_blocking(pipe.fileno(), False)

    def start(self) -> None:
        for pipe in tuple(self._outputs):  # the loop may close one meanwhile
            self._loop.register(pipe.fileno(), lambda _events, pipe=pipe: self._read(pipe))  # type: ignore[misc]

    def kill(self) -> None:
        """End it and its whole session now."""
        self.is_closed = True
        self._signal(signal.SIGKILL)
        self.finish()
        self._loop.reap(self._process)
        self._loop.call_later(ABANDON_AFTER, self._abandon)

    def _kill_later(self) -> None:
        self._loop.reap(self._process)
        self._loop.call_later(TERM_AFTER, lambda: self._signal(signal.SIGTERM))
        self._loop.call_later(KILL_AFTER, self.kill)

    def _signal(self, number: signal.Signals) -> None:
        # Its own session: the group has its pid, and survives it while a grandchild holds our pipes.
        if not self._ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    # ---- on the event loop's thread ----

    def _flush(self) -> None:
        if self._stdin.closed:
            return
        fd = self._stdin.fileno()
        try:
            while self._pending:
                del self._pending[: os.write(fd, self._pending[:CHUNK])]
        except BlockingIOError:
            self._loop.register(fd, lambda _events: self._flush(), WRITE)
            return
        except OSError:  # it closed its input, or ended
            self._pending.clear()
            self._finishing = True
        self._loop.unregister(fd)
        if self._finishing:
            self._stdin.close()

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._outputs[pipe](data)
        else:
            self._close_output(pipe)

    def _abandon(self) -> None:
        for pipe in tuple(self._outputs):
            self._close_output(pipe)

    def _close_output(self, pipe: IO[bytes]) -> None:
        del self._outputs[pipe]
        self._loop.unregister(pipe.fileno())
        pipe.close()
        if not self._outputs:
            self._wait_for_exit()

    def _wait_for_exit(self) -> None:
        status = self._process.poll()
        if status is None:
            # It closed its output and lives on: poll less and less often.
            self._wait = min(self._wait * 2, 1.0)
            self._loop.call_later(self._wait, self._wait_for_exit)
            return
        self._ended = True
        self._finish()
        self._on_end(self)
        self._sink.ended(status, None)


START_TIMEOUT: Seconds = 0.3
"""close() waits this long for a command that is just being started: its program may lie on a disk that hangs."""


class LocalShell(Shell):
    """This machine: commands as child processes in sessions of their own, their pipes read by the one loop."""

    prompted = False

    def __init__(self, loop: EventLoop, *, host: str = "localhost", env: Mapping[str, str] | None = None) -> None:
        self.host = host
        self._loop, self._env = loop, env
        self._streams: set[LocalStream] = set()
        self._starting = threading.Lock()
        self._closed = False

    def stream(self, argv: Sequence[str], sink: Sink) -> LocalStream:
        """Start a command; see Shell.stream.

        Raises:
            CommandFailed: when the command cannot start.
        """
        with self._starting:
            if self._closed:
                raise CommandFailed(f"{self.host}: closed")
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env=self._env,
                )
            except (OSError, ValueError) as error:
                raise CommandFailed(f"{self.host}: {argv[0]!r} cannot be started: {error}") from error
            stream = LocalStream(self._loop, process, sink, self._streams.discard)
            self._streams.add(stream)
            stream.start()
            if self._closed:  # meanwhile: starting it took long
                stream.kill()
            return stream

    def close(self) -> None:
        """Kill every command, also one that is just being started."""
        self._closed = True
        is_acquired = self._starting.acquire(timeout=START_TIMEOUT)
        for stream in tuple(self._streams):
            stream.kill()
        if is_acquired:
            self._starting.release()
