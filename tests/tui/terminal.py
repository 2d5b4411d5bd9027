"""A program on a real pseudo-terminal: keys in, bytes and the screen they draw out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping

import pyte

from tests.lab import forked
from tests.lab.terminal import unsized

DEADLINE = 120.0


class Terminal:
    """Starts `python ARGV…` on a pty; use as a context manager, which leaves nothing running.

    `python -m tests.tui.live` is a fork of a process that has imported it, if it needs no start of its own.
    """

    def __init__(self, *argv: str, size: tuple[int, int] = (120, 40), env: Mapping[str, str] | None = None) -> None:
        self.bytes = b""
        self._text = ""
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        plain = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        environ = {**unsized(os.environ), **plain, **(env or {})}
        winsize = struct.pack("HHHH", size[1], size[0], 0, 0)
        self._child: forked.Child | None = None
        if argv[0] == "-m" and forked.can_run(argv[1:], environ):
            self.fd, slave = os.openpty()
            fcntl.ioctl(self.fd, termios.TIOCSWINSZ, winsize)
            self._child = forked.Child(argv[1:], environ, None, slave)
            os.close(slave)
            self.pid = self._child.pid
        else:
            self.pid, self.fd = pty.fork()
            if self.pid == 0:
                os.execve(sys.executable, [sys.executable, *argv], environ)
            fcntl.ioctl(self.fd, termios.TIOCSWINSZ, winsize)
        self.status: int | None = None
        """Its exit code, or minus the signal that ended it."""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            while not self.has_ended():
                time.sleep(0.01)
        self.hang_up()

    def hang_up(self) -> None:
        """Close our end, as a lost SSH connection does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read(self, seconds: float) -> bytes:
        """What comes within some time; nothing when the program is gone."""
        if self.fd < 0 or not select.select([self.fd], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self.fd, 65_536)
        except OSError:
            return b""
        self.bytes += data
        self._stream.feed(data)
        self._text = ""
        return data

    def until(self, holds: Callable[[], bool], seconds: float = DEADLINE) -> bool:
        """Read until something holds; False when it does not in time."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            self.read(0.05)
        return True

    def shows(self, text: str, seconds: float = DEADLINE) -> bool:
        return self.until(lambda: text in self.text, seconds)

    @property
    def text(self) -> str:
        self._text = self._text or "\n".join(self.screen.display)
        return self._text

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def has_ended(self) -> bool:
        if self.status is None and self._child is not None:
            self.status = self._child.poll()
        elif self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def ends(self, seconds: float = DEADLINE) -> bool:
        """Read to the end; whether the program ended in time."""
        ended = self.until(self.has_ended, seconds)
        while self.read(0.05):
            pass
        return ended

    @property
    def code(self) -> int:
        """As a shell says it: the exit code, or 128 + the signal."""
        assert self.status is not None
        return self.status if self.status >= 0 else 128 - self.status
