"""Our own log: tracebacks and warnings, in a small file of the user's, because the screen belongs to the dashboard."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path

from trainmon.scrub import scrub
from trainmon.state_directory import find

BYTES_AT_MOST = 1_000_000


class _Scrubbed(logging.Formatter):
    """Tokens and passwords in what others wrote into an error never reach the file."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _Private(RotatingFileHandler):
    """A file that only its user can read, and its predecessor of the same size."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding="utf-8", errors="backslashreplace")


def log_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the log is: trainmon.log in the state directory."""
    return find(environ).path / "trainmon.log"


def log_to_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Send all warnings to the file, and none to the terminal. None when there can be no file: then nothing is kept."""
    file = log_file(environ)
    root = logging.getLogger()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler: logging.Handler = _Private(file, maxBytes=BYTES_AT_MOST, backupCount=1)
    except OSError:
        # A read-only home: the dashboard shows every error in its row anyway; only tracebacks are lost.
        root.addHandler(logging.NullHandler())
        return None
    handler.setFormatter(_Scrubbed("%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    return file
