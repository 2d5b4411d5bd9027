"""What the streams of local and of remote commands have in common: queued input, and an end in two steps."""

from __future__ import annotations

from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Sink

CHUNK = 65_536
PENDING_LIMIT = 64 * 1024 * 1024
"""Bytes kept for a command that reads none of its input; a command with more is killed."""


class CommandStream:
    """A running command: `write`, `finish`, `close` and `kill` may be called from any thread and never block."""

    def __init__(self, loop: EventLoop, sink: Sink) -> None:
        self._loop = loop
        self._sink = sink
        self._pending = bytearray()
        self._finishing = False
        self._closed = False
        self._ended = False

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

    def kill(self) -> None:
        """End it now."""
        raise NotImplementedError

    def _kill_later(self) -> None:
        raise NotImplementedError

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

    def _flush(self) -> None:
        """Write what the command takes now; close its standard input when all is written and `finish` was called."""
        raise NotImplementedError
