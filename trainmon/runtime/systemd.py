"""Notifies the service manager: ready, status, watchdog, reloading, stopping (sd_notify(3)).

The watchdog is fed after completed evaluations only, never by a timer, so that a hanging loop is detected.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping

from trainmon.lib import Seconds, clean

log = logging.getLogger(__name__)

PER_TIMEOUT = 4
"""How many watchdog messages fit into one timeout: one may be late, and one may be lost."""


class Watchdog:
    """The socket in $NOTIFY_SOCKET; without one, every method does nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ, pid: int | None = None) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._every = every(environ, os.getpid() if pid is None else pid)
        self._fed_at: Seconds | None = None
        self._status = ""

    @property
    def is_there(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={self._kept(status)}")

    def status(self, status: str) -> None:
        """Send one line about the state, if it changed."""
        if self._status != self._kept(status):
            self._send(f"STATUS={self._status}")

    def feed(self, monotonic: Seconds) -> None:
        """An evaluation of all rules was completed."""
        if self._every is not None and (self._fed_at is None or monotonic - self._fed_at >= self._every):
            self._fed_at = monotonic
            self._send("WATCHDOG=1")

    def reloading(self, monotonic: Seconds) -> None:
        """The config is read again; ready() ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic * 1e6:.0f}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={self._kept(status)}")

    def _kept(self, status: str) -> str:
        self._status = clean(status, 300)
        return self._status

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(1.0)
                channel.connect(self._address)
                channel.sendall("\n".join(lines).encode())
        except OSError as error:
            log.warning("the service manager cannot be notified: %s", error)


def every(environ: Mapping[str, str], pid: int) -> Seconds | None:
    """How often this process must feed the watchdog; None when there is none."""
    timeout = 0.0
    if environ.get("WATCHDOG_PID", str(pid)) == str(pid):
        with contextlib.suppress(ValueError):
            timeout = int(environ.get("WATCHDOG_USEC", "")) / 1e6
    return timeout / PER_TIMEOUT if timeout > 0 else None
