"""A ProxyCommand, run on one end of a socket pair: its death is an end of file (paramiko's own spins at 100 %)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess

from trainmon.lib import clean
from trainmon.transport.event_loop import EventLoop

KEPT = 2_000
KILL_AFTER = 1.0


class Proxy:
    """A running ProxyCommand. `socket` is our end; close() ends the command and whatever it started."""

    def __init__(self, command: str, reader: EventLoop) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        self._reader = reader
        self._said = b""
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", "exec " + command],  # what OpenSSH does: the config's owner wrote this line
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
        reader.watch(self._stderr.fileno(), self._listen)

    @property
    def last_words(self) -> str:
        """The last line of its standard error."""
        lines = [line for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        return clean(lines[-1], 200) if lines else ""

    def close(self) -> None:
        self.socket.close()
        self._signal(signal.SIGTERM)
        self._reader.soon(self._deafen)
        self._reader.adopt(self._process)
        self._reader.later(KILL_AFTER, self._kill)

    def _listen(self, _events: int) -> None:
        try:
            data = os.read(self._stderr.fileno(), 4096)
        except BlockingIOError:
            return
        self._said = (self._said + data)[-KEPT:]
        if not data:
            self._deafen()

    def _deafen(self) -> None:
        if not self._stderr.closed:
            self._reader.forget(self._stderr.fileno())
            self._stderr.close()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
