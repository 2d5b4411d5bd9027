"""Commands on this machine: child processes whose pipes the event loop reads."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO

from trainmon.lib import CommandFailed, Seconds
from trainmon.transport.event_loop import WRITE, EventLoop
from trainmon.transport.shell import CHUNK, CommandStream, Completed, Sink, collect

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
        pipes = (pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None)
        self._stdin, *outputs = pipes
        self._outputs = dict(zip(outputs, (sink.received, sink.stderr_received), strict=True))
        """The output pipes that are open, and who gets their bytes."""
        for pipe in (self._stdin, *self._outputs):
            os.set_blocking(pipe.fileno(), False)

    def start(self) -> None:
        for pipe in tuple(self._outputs):  # the loop may close one meanwhile
            self._loop.register(pipe.fileno(), lambda _events, pipe=pipe: self._read(pipe))  # type: ignore[misc]

    def kill(self) -> None:
        """End it and its whole session now."""
        self._closed = True
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


class LocalShell:
    """This machine: commands as child processes in sessions of their own, their pipes read by the one loop."""

    prompted = False

    def __init__(self, loop: EventLoop, *, host: str = "localhost") -> None:
        self.host = host
        self._loop = loop
        self._streams: set[LocalStream] = set()
        self._starting = threading.Lock()
        self._closed = False

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end; see Shell.run."""
        return collect(self, argv, stdin, timeout)

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
