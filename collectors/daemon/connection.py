"""The connection to the daemon's machine: that of a watched host, or a separate one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from collectors.connections import Connections
from trainmon.config import ConnectSettings
from trainmon.lib import Seconds
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, Completed, Shell, Sink, Stream


class DaemonConnection:
    """Connects to the daemon's machine once.

    `watched` returns the live connection of a watched host, or None if the host is not watched. It raises
    HostUnreachable while a watched host has no connection.
    """

    def __init__(
        self, host: str, watched: Callable[[str], Shell | None], ask: AskUser | None, ssh_config: Path | None
    ) -> None:
        self._host = host
        self._watched = watched
        self._loop = EventLoop()
        self._connections = Connections(self._loop, ConnectSettings(), ask, ssh_config)
        self._is_loop_started = False

    def shell(self) -> Shell:
        """The shared connection, or a new one.

        Raises:
            HostUnreachable: when there is none.
        """
        live = self._watched(self._host)
        if live is not None:
            return SharedShell(live)
        if not self._is_loop_started:
            self._is_loop_started = True
            self._loop.start()
        return self._connections.dial(self._host)

    def close(self) -> None:
        self._connections.close()
        self._loop.stop()


class SharedShell:
    """A connection that belongs to another collector: close() does not end it."""

    prompted = False
    """Its owner redials it."""

    def __init__(self, shell: Shell) -> None:
        self.host = shell.host
        self._shell = shell

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        return self._shell.run(argv, stdin=stdin, timeout=timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        return self._shell.stream(argv, sink)

    def close(self) -> None:
        """Its owner closes it."""
