"""Temporary directories of our own. `kill -9` leaves them behind: the next program that starts removes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "trainmon-"


class ScratchDirectory(tempfile.TemporaryDirectory[str]):
    """A temporary directory with a lock in the kernel's memory, which ends with this process."""

    def __init__(self, kind: str) -> None:
        super().__init__(prefix=f"{PREFIX}{kind}-", ignore_cleanup_errors=True)
        self._lock = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a network file system without locks: `remove_abandoned` leaves it alone
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def cleanup(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        super().cleanup()


def remove_abandoned(kind: str) -> None:
    """Remove the directories of this kind whose program was killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}{kind}-*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
