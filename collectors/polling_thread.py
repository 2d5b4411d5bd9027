"""A thread that polls: it calls `step` when it is due or woken, until it is stopped."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from trainmon.lib import Clock, Seconds
from trainmon.lib.threads import Background
from trainmon.model import Event, Source, SourceChanged, SourceRemoved

log = logging.getLogger(__name__)

MIN_REFRESH: Seconds = 5.0
"""Between two polls that a person requests."""


class PollingThread(Background):
    """The base of pollers: a thread that submits events. `start` and `stop` return at once."""

    stop_timeout: ClassVar[Seconds] = 0.3
    most_requests: ClassVar[int | None] = 64
    """More of them replace the oldest."""

    def __init__(self, name: str, every: Seconds, submit: Callable[[Event], None], clock: Clock) -> None:
        """`every` is the pause after an unexpected exception in `step`."""
        super().__init__(name)
        self._every = every
        self._submit = submit
        self._clock = clock
        self._sources: dict[str, Source] = {}
        """The submitted sources, by name."""
        self._requests: deque[Callable[[], None]] = deque(maxlen=self.most_requests)
        """What other threads have asked for."""
        self._wake = threading.Event()

    def _interrupt(self) -> None:
        """A command that hangs is not waited for: it ends by its own time limit."""
        self._wake.set()

    def forget(self) -> None:
        """Stop for good, and drop its sources: the config no longer has them."""
        self.stop()
        for name in self._sources:
            self._submit(SourceRemoved(name))

    @abstractmethod
    def step(self) -> Seconds | None:
        """Do what is due. Returns the seconds until the next call; None: until it is woken."""

    @abstractmethod
    def refresh(self) -> None:
        """Poll soon: a person requested it. Does not block."""

    def on_error(self, error: Exception) -> None:
        """Report an unexpected exception of `step`: a bug must not end the thread silently."""
        log.error("a step of %s failed", self._thread.name, exc_info=error)

    def _submit_source(self, source: Source) -> None:
        """Submit a source if it has changed."""
        if source != self._sources.get(source.name) and not self._stopping.is_set():
            self._sources[source.name] = source
            self._submit(SourceChanged(source))

    def _request(self, task: Callable[[], None]) -> None:
        """Have a task done soon, by `_do_requests` on our own thread. Does not block."""
        self._requests.append(task)
        self._wake.set()

    def _do_requests(self) -> None:
        while self._requests and not self._stopping.is_set():
            self._requests.popleft()()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wait: Seconds | None = self.step()
            except Exception as error:
                self.on_error(error)
                wait = self._every
            self._wake.wait(wait)
            self._wake.clear()


class PollTimes:
    """When the next poll is due. Pure: time is an argument."""

    def __init__(self, every: Seconds) -> None:
        self.interval = self._every = every
        """The current time between two polls."""
        self._due = self._began = float("-inf")

    def due_in(self, now: Seconds) -> Seconds:
        return max(0.0, self._due - now)

    def begin(self, now: Seconds) -> None:
        """A poll begins."""
        self._began = now

    def refresh(self, now: Seconds) -> None:
        """A person requests a poll."""
        self._due = min(self._due, max(now, self._began + MIN_REFRESH))
