"""Our own log: tracebacks and warnings in a small file of the user, because the dashboard owns the screen.

A thread writes it: a thread that warns about a dead disk must not wait for that disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from trainmon.lib import Seconds, counted, find_state_directory, scrub

BYTES_AT_MOST = 1_000_000

WAITING_AT_MOST = 1_000
"""How many lines wait for the disk; more are lost, and counted."""

FLUSH: Seconds = 1.0
"""How long the end of the program waits for the disk."""


class _Scrubbed(logging.Formatter):
    """Masks tokens and passwords that an error may hold."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _PrivateFile:
    """A file that only its user can read, and the previous one of the same size."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, line: bytes) -> None:
        if self._size + len(line) > BYTES_AT_MOST:
            self._file.replace(f"{self._file}.1")
            os.close(self._descriptor)
            self._open()
        os.write(self._descriptor, line)
        self._size += len(line)


class BackgroundHandler(logging.Handler):
    """Gives lines to a thread that writes them; `write` may hang. It waits for the thread only at the end."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        super().__init__()
        self._write = write
        self._lines: queue.Queue[bytes | threading.Event | None] = queue.Queue(WAITING_AT_MOST)
        self._lost = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        lost = f"({counted(self._lost, 'line')} lost before this)\n" if self._lost else ""
        try:
            line = f"{lost}{self.format(record)}\n".encode(errors="backslashreplace")
            self._lines.put_nowait(line)
            self._lost = 0
        except queue.Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all lines so far are written, at most FLUSH. logging also calls it at the end."""
        written = threading.Event()
        try:
            self._lines.put_nowait(written)
        except queue.Full:
            return
        written.wait(FLUSH)

    def close(self) -> None:
        """End the thread after the lines that wait."""
        with contextlib.suppress(queue.Full):  # it hangs, and ends with the program
            self._lines.put_nowait(None)
        super().close()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._write(line)
            except OSError:
                self._lost += 1  # a full disk: there is no other place to report it


def log_to_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Send all warnings to trainmon.log in the state directory, and none to the terminal. None when there can be no
    file: then nothing is kept."""
    file = find_state_directory(environ).path / "trainmon.log"
    root = logging.getLogger()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = BackgroundHandler(_PrivateFile(file).write)
    except OSError:
        # A read-only home: the dashboard shows every error in its row anyway; only tracebacks are lost.
        root.addHandler(logging.NullHandler())
        return None
    handler.setFormatter(_Scrubbed("%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    return file
