"""Keeps what the dashboard shows in a file, so that its next start can tell what has changed since."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec

from collectors.polling_thread import PollingThread
from trainmon.analysis.last_seen import is_settled, seen
from trainmon.lib import Seconds, SystemClock
from trainmon.lib.decoding import decoder
from trainmon.model import LastSeen, State

log = logging.getLogger(__name__)

WRITE_EVERY: Seconds = 30.0
"""A dashboard that is killed has lost at most this much."""


class LastSeenFile(PollingThread):
    """Writes the file of one config, every half minute and at the end. A disk that hangs delays nobody else."""

    join_timeout: ClassVar[Seconds] = 0.5

    def __init__(self, directory: Path, name: str, state: Callable[[], State]) -> None:
        """`name` is that of the config: each has a file of its own."""
        super().__init__("last seen", WRITE_EVERY, lambda _: None, SystemClock())
        self._file = directory / f"last-seen-{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"
        self._state = state
        self.before = self._read()
        """What was seen before this start; None the first time."""
        self._kept = self.before

    def _read(self) -> LastSeen | None:
        try:
            return decoder(LastSeen).decode(self._file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("%s cannot be read: %s", self._file, error)
            return None

    def step(self) -> Seconds:
        state = self._state()
        if is_settled(state):
            self._kept = seen(state, self._kept)
            self._write(self._kept)
        return WRITE_EVERY

    def refresh(self) -> None:
        self._wake.set()

    def on_error(self, error: Exception) -> None:
        log.warning("%s cannot be written: %s", self._file, error)

    def _write(self, kept: LastSeen) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._file.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(kept))
        temporary.replace(self._file)

    def _run(self) -> None:
        super()._run()
        try:
            self.step()
        except OSError as error:
            self.on_error(error)
