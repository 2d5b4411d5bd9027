"""Our own log: tracebacks and warnings, in a small file of the user's, because the screen belongs to the dashboard.

A thread writes it: who warns of a dead disk must not wait for that disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from trainmon.lib import Seconds, find_state_directory, scrub

BYTES_AT_MOST = 1_000_000

WAITING_AT_MOST = 1_000
"""Warnings that wait for the disk; what comes beyond is lost, and counted."""

FLUSH: Seconds = 1.0
"""How long the end of the program waits for the disk."""


class _Scrubbed(logging.Formatter):
    """Tokens and passwords in what others wrote into an error never reach the file."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _Private:
    """A file that only its user can read, and its predecessor of the same size."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, line: bytes) -> None:
        if self._size + len(line) > BYTES_AT_MOST:
            self._file.replace(f"{self._file}.1")
            self.close()
            self._open()
        os.write(self._descriptor, line)
        self._size += len(line)

    def close(self) -> None:
        os.close(self._descriptor)


class Sink(Protocol):
    """Where lines end up; it may hang."""

    def write(self, line: bytes) -> None: ...

    def close(self) -> None: ...


class Background(logging.Handler):
    """Hands lines to the thread that writes them; never waits for it, but for a moment at the end."""

    def __init__(self, to: Path | Sink) -> None:
        super().__init__()
        self._file: Sink = _Private(to) if isinstance(to, Path) else to
        self._lines: queue.Queue[bytes | threading.Event | None] = queue.Queue(WAITING_AT_MOST)
        self._lost = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        lost = f"({self._lost} lines before this were lost)\n" if self._lost else ""
        try:
            line = f"{lost}{self.format(record)}\n".encode(errors="backslashreplace")
            self._lines.put_nowait(line)
            self._lost = 0
        except queue.Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until what was said by now is in the file, at most FLUSH. Called by logging at the end, too."""
        written = threading.Event()
        try:
            self._lines.put_nowait(written)
        except queue.Full:
            return
        written.wait(FLUSH)

    def close(self) -> None:
        """Let the thread end once it has written what it has."""
        with contextlib.suppress(queue.Full):  # it hangs, and ends with the program
            self._lines.put_nowait(None)
        super().close()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._file.write(line)
            except OSError:
                self._lost += 1  # a full disk: there is no other place to say so
        self._file.close()


def log_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the log is: trainmon.log in the state directory."""
    return find_state_directory(environ).path / "trainmon.log"


def log_to_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Send all warnings to the file, and none to the terminal. None when there can be no file: then nothing is kept."""
    file = log_file(environ)
    root = logging.getLogger()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler: logging.Handler = Background(file)
    except OSError:
        # A read-only home: the dashboard shows every error in its row anyway; only tracebacks are lost.
        root.addHandler(logging.NullHandler())
        return None
    handler.setFormatter(_Scrubbed("%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    return file
