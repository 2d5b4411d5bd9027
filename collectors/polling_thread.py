"""A thread that polls: it calls `step` when it is due or woken, until it is stopped."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import ClassVar

from trainmon.lib import Seconds

log = logging.getLogger(__name__)


class PollingThread(ABC):
    """The base of pollers. `start` and `stop` return at once."""

    join_timeout: ClassVar[Seconds] = 0.3
    """How long `stop` waits for the end of a step."""

    def __init__(self, name: str, every: Seconds) -> None:
        """`every` is the pause after an unexpected exception in `step`."""
        self._every = every
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop. A command that hangs is not waited for: it ends by its own time limit."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self.join_timeout)

    @abstractmethod
    def step(self) -> Seconds | None:
        """Do what is due. Returns the seconds until the next call; None: until it is woken."""

    @abstractmethod
    def refresh(self) -> None:
        """Poll soon: a person requested it. Does not block."""

    def on_error(self, error: Exception) -> None:
        """Report an unexpected exception of `step`: a bug must not end the thread silently."""
        log.error("a step of %s failed", self._thread.name, exc_info=error)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wait: Seconds | None = self.step()
            except Exception as error:
                self.on_error(error)
                wait = self._every
            self._wake.wait(wait)
            self._wake.clear()
