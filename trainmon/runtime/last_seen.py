"""Keeps what the dashboard shows in a file, so that its next start can tell what has changed since."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from collectors.polling_thread import PollingThread
from trainmon.analysis.last_seen import is_settled, seen
from trainmon.lib import Seconds, SystemClock, write_private
from trainmon.lib.threads import decoder
from trainmon.model import Arrangement, LastSeen, State

log = logging.getLogger(__name__)

WRITE_EVERY: Seconds = 30.0
"""A dashboard that is killed has lost at most this much."""


class LastSeenFile(PollingThread):
    """Writes the file of one config, every half minute and at the end. A disk that hangs delays nobody else."""

    stop_timeout: ClassVar[Seconds] = 0.5

    def __init__(self, directory: Path, name: str, state: Callable[[], State]) -> None:
        """`name` is that of the config: each has a file of its own."""
        super().__init__("last seen", WRITE_EVERY, lambda _: None, SystemClock())
        self._file = directory / f"last-seen-{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"
        self._state = state
        self.before = self._read()
        """What was seen before this start; None the first time."""
        self._kept = self.before
        self.arrangement: Callable[[], Arrangement] = Arrangement
        """How the panes are arranged now."""

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
        arrangement = self.arrangement()
        if self._kept is not None or arrangement != Arrangement():
            self._kept = replace(self._kept or LastSeen(at=0.0), arrangement=arrangement)
            write_private(self._file, msgspec.json.encode(self._kept))
        return WRITE_EVERY

    def refresh(self) -> None:
        self._wake.set()

    def on_error(self, error: Exception) -> None:
        log.warning("%s cannot be written: %s", self._file, error)

    def _run(self) -> None:
        super()._run()
        try:
            self.step()
        except OSError as error:
            self.on_error(error)
