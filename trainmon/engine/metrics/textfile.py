"""Writes the metrics to a file for the textfile collector of node_exporter, which reads it at any time."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


class Textfile:
    """One file. A reader sees all of an old version or all of a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: int | None = None
        """The inode of what this program wrote last."""

    def write(self, text: bytes) -> None:
        """Replace the file.

        Raises: OSError: when it cannot be written.
        """
        try:
            self._write(text)
        except OSError as error:  # its text names the temporary file, which has another name each time
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def _write(self, text: bytes) -> None:
        descriptor, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)  # node_exporter runs as another user
                inode = os.fstat(file.fileno()).st_ino
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._written = inode

    def remove(self) -> None:
        """Remove the file: node_exporter would go on to report numbers that nobody updates. One that another program
        has written since is kept."""
        with contextlib.suppress(OSError):
            if self._written is not None and self._path.stat().st_ino == self._written:
                self._path.unlink()
        self._written = None
