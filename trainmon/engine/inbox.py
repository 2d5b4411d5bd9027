"""The events that wait for the engine's thread."""

from __future__ import annotations

import queue
import threading

from trainmon.lib import Seconds
from trainmon.model import Event, NodeReading


class Inbox:
    """A queue that wakes its reader seldom. Hundreds of readings come each second, and most of them wait for the next
    State anyway: waking the engine for each cost more than taking it."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._readings_wake = True

    def put(self, event: Event | None) -> None:
        """Queue an event, or None: what came before it is not to wait. From any thread. Never blocks."""
        self._events.put(event)
        if self._readings_wake or not isinstance(event, NodeReading):
            self._wake.set()

    def take(self, timeout: Seconds, *, readings: bool) -> list[Event | None]:
        """What has come, up to the first None. Waits if that is nothing: for any event if `readings`, else for one that
        is no reading. May return nothing before the timeout."""
        self._readings_wake = readings
        self._wake.clear()  # before looking: what comes after this look sets it again
        if self._events.empty() and timeout > 0:
            self._wake.wait(timeout)
        found: list[Event | None] = []
        while not self._events.empty() and (not found or found[-1] is not None):
            found.append(self._events.get_nowait())
        return found
