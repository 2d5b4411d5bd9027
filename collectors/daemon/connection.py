"""The connection to the machine of the daemon: a watched host's own, where it is one; else one login of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from collectors.connections import Connections
from trainmon.config import ConnectSettings
from trainmon.lib import Seconds
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, Completed, Shell, Sink, Stream


class DaemonConnection:
    """`watched` is the live connection of a watched host, or None where it is none; it raises HostUnreachable with the
    words of the host's row while there is none."""

    def __init__(
        self, host: str, watched: Callable[[str], Shell | None], ask: AskUser | None, ssh_config: Path | None
    ) -> None:
        self._host = host
        self._watched = watched
        self._loop = EventLoop()
        self._dialling = Connections(self._loop, ConnectSettings(), ask, ssh_config)
        self._is_read = False

    def shell(self) -> Shell:
        """Dial, or borrow. Raises HostUnreachable."""
        live = self._watched(self._host)
        if live is not None:
            return SharedShell(live)
        if not self._is_read:
            self._is_read = True
            self._loop.start()
        return self._dialling.dial(self._host)

    def close(self) -> None:
        self._dialling.close()
        if self._is_read:
            self._loop.stop()


class SharedShell:
    """A connection that another keeps: letting go of it does not end it."""

    prompted = False
    """Whoever keeps it redials it, or does not."""

    def __init__(self, shell: Shell) -> None:
        self.host = shell.host
        self._shell = shell

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        return self._shell.run(argv, stdin=stdin, timeout=timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        return self._shell.stream(argv, sink)

    def close(self) -> None:
        """It stays."""
