"""Files of a running dashboard: the config, which is loaded again when it has changed, and what was seen last."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec
from msgspec.structs import replace

from collectors.polling_thread import PollingThread
from trainmon.analysis.last_seen import is_settled, seen
from trainmon.config import Settings
from trainmon.lib import ConfigError, Seconds, SystemClock, write_private
from trainmon.lib.threads import Background, decoder
from trainmon.model import Arrangement, LastSeen, State

log = logging.getLogger(__name__)

# ---- loads the config of a running dashboard again, when its file has changed or a person asks for it ----------------

LOOK_EVERY: Seconds = 1.0
"""A file that changes is read when it is the same for this long: an editor may have written half of it."""

LOADED, REFUSED = "config loaded", "config refused: the old one stays in use"


class Reloadable(Protocol):
    """What runs by the config."""

    def reload_most(self, settings: Settings) -> tuple[str, ...]:
        """Use these settings; the names of those that count from the next start. Raises ConfigError."""

    def trouble(self, problem: str | None) -> None:
        """Report why the config on the disk is not the one that runs; None when it is."""


class ConfigFile(Background):
    """Follows one file. `tell` gets a title, a text and a severity, on a thread of its own."""

    def __init__(
        self,
        choose: Callable[[], tuple[Settings, Path | None]],
        settings: Settings,
        file: Path | None,
        program: Reloadable,
        tell: Callable[[str, str, str], object],
        show: Callable[[Settings], object],
    ) -> None:
        """`show`: apply how the dashboard looks, on the same thread as `tell`."""
        super().__init__("config")
        self._choose, self._program, self._tell, self._show = choose, program, tell, show
        self._settings, self._file = settings, file
        self._asked = threading.Event()
        self._loaded = self._signature()

    def _interrupt(self) -> None:
        self._asked.set()

    def load_now(self) -> None:
        """Load it again, and say so even if it has not changed. From any thread."""
        self._asked.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            before = self._signature()
            is_asked = self._asked.wait(LOOK_EVERY) and not self._stopping.is_set()
            self._asked.clear()
            now = self._signature()
            if is_asked or now == before != self._loaded:
                self._loaded = now
                self._load(is_asked=is_asked)

    def _signature(self) -> tuple[int, ...]:
        """What changes when the file is written, or another one takes its place."""
        try:
            found = None if self._file is None else self._file.stat()
        except OSError:
            return (0,)
        return () if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)

    def _load(self, *, is_asked: bool) -> None:
        try:
            settings, self._file = self._choose()
            later = self._program.reload_most(settings)
        except ConfigError as error:
            self._refuse(str(error))
        except Exception as error:  # such as a working directory that is gone: the dashboard goes on
            log.exception("the config could not be read again")
            self._refuse(f"it could not be read: {error}")
        else:
            self._program.trouble(None)
            self._show(settings)
            if is_asked or settings != self._settings:
                text = f"from the next start: {', '.join(later)}" if later else f"{self._file or 'there is no file'}"
                self._tell(LOADED, text, "info")
            self._settings = settings

    def _refuse(self, problems: str) -> None:
        self._program.trouble(f"config refused: {problems.splitlines()[0]}")
        self._tell(REFUSED, f"Correct it: it is read again when you save it.\n{problems}", "warning")


# ---- keeps what the dashboard shows in a file, so that its next start can tell what has changed since ----------------

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
