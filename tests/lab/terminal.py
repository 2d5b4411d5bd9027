"""A program in a terminal of its own: what it writes, what it costs, and keys for it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyte

TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a process tree has used since it started, and holds now."""

    at: float
    cpu_s: float
    rss_mib: float
    threads: int
    written: int


def unsized(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment that says nothing of a terminal's size: a runner of tests may have told its own."""
    return {name: value for name, value in environ.items() if name not in {"COLUMNS", "LINES"}}


class Terminal:
    """A child on a pty. A thread reads all it writes, as a terminal would, and answers nothing."""

    def __init__(
        self, argv: Sequence[str], *, columns: int = 120, rows: int = 40, env: Mapping[str, str] | None = None
    ) -> None:
        self.screen = bytearray()
        self.written = 0
        self._drawn = pyte.Screen(columns, rows)
        self._display = pyte.ByteStream(self._drawn)
        self._fed = 0
        self._text = ""
        self.first_at: float | None = None
        self.started_at = time.monotonic()
        self._changed = threading.Condition()
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self.pid, self._master = self._start(argv, {**unsized(os.environ), "TERM": "xterm-256color", **(env or {})})
        self._status: int | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, int]:
        """Start the child in a terminal that has its size already; its pid, and the terminal's other side."""
        pid, master = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, self._size)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests in the background of a shell were started deaf to it
            os.execvpe(argv[0], list(argv), env)
        return pid, master

    def _poll(self) -> int | None:
        """The child's exit status; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def _read(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self._master], [], [], 1.0)
                data = os.read(self._master, 1 << 16) if ready else None
            except OSError:
                data = b""
            with self._changed:
                if data:
                    self.written += len(data)
                    self.screen += data
                self._changed.notify_all()
            if data == b"":
                return

    def resize(self, *, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def keys(self, text: str) -> None:
        os.write(self._master, text.encode())

    def text(self) -> str:
        """The screen as a person sees it now."""
        with self._changed:
            new = bytes(self.screen[self._fed :])
            self._fed = len(self.screen)
        if new or not self._text:  # hundreds of looks at one screen cost as much as one
            self._display.feed(new)
            self._text = "\n".join(self._drawn.display)
        return self._text

    def wait_for_text(self, text: str, timeout: float = 120.0) -> None:
        """Wait until a person sees a text; TimeoutError with the screen if it does not come."""
        deadline = time.monotonic() + timeout
        while text not in self.text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} not on the screen within {timeout} s:\n{self.text()}")
            time.sleep(0.1)

    def wait_for(self, shown: Callable[[bytes], bool] | bytes, timeout: float = 120.0) -> None:
        """Wait until what was written satisfies a condition; TimeoutError with the last of it if it does not."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (shown(bytes(self.screen)) if callable(shown) else shown in self.screen):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not shown within {timeout} s; the last was {bytes(self.screen[-2000:])!r}")
                self._changed.wait(0.2)

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for the child's end; its exit status."""
        deadline = time.monotonic() + timeout
        while self._status is None:
            self._status = self._poll()
            if self._status is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"still running after {timeout} s")
                time.sleep(0.02)
        self._reader.join(2.0)
        return self._status

    def cost(self) -> Cost:
        """The child alone, without its own children."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.pid}/status").read_text()
        rss = int(status.partition("VmRSS:")[2].split()[0]) / 1024
        return Cost(time.monotonic(), (int(fields[11]) + int(fields[12])) / TICKS, rss, int(fields[17]), self.written)

    def is_asleep(self) -> bool:
        """Whether the child waits for something, such as a key."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    def close(self) -> None:
        if self._status is None:
            self._status = self._poll()
        if self._status is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.kill(self.pid, number)
                try:
                    self.wait(3.0)
                    break
                except TimeoutError:
                    continue
        os.close(self._master)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
