"""A ProxyCommand on one end of a socket pair: when it ends, we read end of file (paramiko's own spins at 100 %)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess

from trainmon.lib import clean
from trainmon.transport.event_loop import EventLoop

OUTPUT_LIMIT = 2_000
KILL_AFTER = 1.0


class Proxy:
    """A running ProxyCommand. `socket` is our end; close() ends the command and whatever it started."""

    def __init__(self, command: str, loop: EventLoop) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        self._loop = loop
        self._output = b""
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", "exec " + command],  # what OpenSSH does: the user's own config has this line
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        loop.register(self._stderr.fileno(), self._read_stderr)

    @property
    def last_error(self) -> str:
        """The last line of its standard error."""
        lines = [line for line in self._output.decode("utf-8", "replace").splitlines() if line.strip()]
        return clean(lines[-1], 200) if lines else ""

    def close(self) -> None:
        self.socket.close()
        self._signal(signal.SIGTERM)
        self._loop.call_soon(self._close_stderr)
        self._loop.reap(self._process)
        self._loop.call_later(KILL_AFTER, self._kill)

    def _read_stderr(self, _events: int) -> None:
        try:
            data = os.read(self._stderr.fileno(), 4096)
        except BlockingIOError:
            return
        self._output = (self._output + data)[-OUTPUT_LIMIT:]
        if not data:
            self._close_stderr()

    def _close_stderr(self) -> None:
        if not self._stderr.closed:
            self._loop.unregister(self._stderr.fileno())
            self._stderr.close()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
