"""A child process on this machine as a Stream: three pipes at the reader, and nothing left behind when it is closed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainmon.lib import CommandFailed, Seconds
from trainmon.transport.event_loop import WRITE, EventLoop
from trainmon.transport.shell import Completed, Sink, collect

if TYPE_CHECKING:
    from trainmon.transport.shell import Sink

CHUNK = 65_536
PENDING = 64 * 1024 * 1024
"""Bytes kept for a command that reads none of its input; with more, it is given up."""

TERM_AFTER, KILL_AFTER = 1.0, 2.0
"""A closed command has a second to see the end of its input, and one more for SIGTERM."""

ABANDON_AFTER = 1.0
"""A grandchild in a session of its own may hold our pipes for ever: they are not waited for."""


class LocalStream:
    """A running command of this machine."""

    def __init__(
        self,
        reader: EventLoop,
        process: subprocess.Popen[bytes],
        sink: Sink,
        gone: Callable[[LocalStream], None],
    ) -> None:
        self._reader = reader
        self._process = process
        self._sink = sink
        self._gone = gone
        self._pending = bytearray()
        self._finishing = False
        self._closed = False
        self._ended = False
        self._open = 2
        self._wait = 0.005
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)

    def start(self) -> None:
        self._reader.watch(self._stdout.fileno(), self._read_stdout)
        self._reader.watch(self._stderr.fileno(), self._read_stderr)

    def write(self, data: bytes) -> None:
        self._reader.soon(lambda: self._queue(data))

    def finish(self) -> None:
        """Close its standard input once everything queued is written."""
        self._reader.soon(self._finish)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.finish()
        self._reader.adopt(self._process)
        self._reader.later(TERM_AFTER, lambda: self._signal(signal.SIGTERM))
        self._reader.later(KILL_AFTER, self.kill)

    def kill(self) -> None:
        """End it and its whole session now."""
        self._closed = True
        self._signal(signal.SIGKILL)
        self.finish()
        self._reader.adopt(self._process)
        self._reader.later(ABANDON_AFTER, self._abandon)

    def _signal(self, number: signal.Signals) -> None:
        # Its own session: the group has its pid, and survives it while a grandchild holds our pipes.
        if not self._ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    # ---- on the reader's thread ------------------------------------------------------------------------------------

    def _queue(self, data: bytes) -> None:
        if self._finishing or self._stdin.closed:
            return
        self._pending += data
        self._flush(WRITE)
        if len(self._pending) > PENDING:
            self._pending.clear()
            self.kill()

    def _finish(self) -> None:
        self._finishing = True
        self._flush(WRITE)

    def _flush(self, _events: int) -> None:
        if self._stdin.closed:
            return
        fd = self._stdin.fileno()
        try:
            while self._pending:
                del self._pending[: os.write(fd, self._pending[:CHUNK])]
        except BlockingIOError:
            self._reader.watch(fd, self._flush, WRITE)
            return
        except OSError:  # it closed its input, or ended
            self._pending.clear()
            self._finishing = True
        self._reader.forget(fd)
        if self._finishing:
            self._stdin.close()

    def _read_stdout(self, _events: int) -> None:
        data = self._read(self._stdout.fileno())
        if data:
            self._sink.received(data)
        elif data is not None:
            self._reader.forget(self._stdout.fileno())
            self._stdout.close()
            self._pipe_ended()

    def _read_stderr(self, _events: int) -> None:
        data = self._read(self._stderr.fileno())
        if data:
            self._sink.complained(data)
        elif data is not None:
            self._reader.forget(self._stderr.fileno())
            self._stderr.close()
            self._pipe_ended()

    @staticmethod
    def _read(fd: int) -> bytes | None:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _abandon(self) -> None:
        for pipe in (self._stdout, self._stderr):
            if not pipe.closed:
                self._reader.forget(pipe.fileno())
                pipe.close()
                self._pipe_ended()

    def _pipe_ended(self) -> None:
        self._open -= 1
        if not self._open:
            self._reap()

    def _reap(self) -> None:
        status = self._process.poll()
        if status is None:
            # It closed its output and lives on: look again, less and less often.
            self._wait = min(self._wait * 2, 1.0)
            self._reader.later(self._wait, self._reap)
            return
        self._ended = True
        self._finish()
        self._gone(self)
        self._sink.ended(status, None)


START_AT_MOST: Seconds = 0.3
"""How long the start of a command is waited for at the end: its program may lie on a disk that hangs."""


class LocalShell:
    """This machine: commands as child processes in sessions of their own, their pipes read by the one reader."""

    prompted = False

    def __init__(self, reader: EventLoop, *, host: str = "localhost") -> None:
        self.host = host
        self._reader = reader
        self._streams: set[LocalStream] = set()
        self._starting = threading.Lock()
        self._closed = False

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end; see Shell.run."""
        return collect(self, argv, stdin, timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> LocalStream:
        """Start a command; see Shell.stream."""
        with self._starting:
            if self._closed:
                raise CommandFailed(f"{self.host}: closed")
            return self._started(argv, sink)

    def _started(self, argv: Sequence[str], sink: Sink) -> LocalStream:
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
        stream = LocalStream(self._reader, process, sink, self._streams.discard)
        self._streams.add(stream)
        stream.start()
        return stream

    def close(self) -> None:
        """End every command at once, also one that is just being started: nothing is left behind."""
        self._closed = True
        waited = self._starting.acquire(timeout=START_AT_MOST)
        for stream in tuple(self._streams):
            stream.kill()
        if waited:
            self._starting.release()
