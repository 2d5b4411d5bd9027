"""Calls that end in time whatever hangs: they are made on a thread that is left behind when it takes too long.

A socket's time-out bounds one read, not all of them, and the resolver of names has none at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from trainmon.lib.clock import Seconds

Answer = TypeVar("Answer")

LEFT_AT_MOST = 4
"""Calls that were left behind and still hang; with so many, none is made any more until one of them ends."""


class DeadlineExceeded(Exception):
    """The call did not end in time; it may still be done."""


class DeadlineRunner(Generic[Answer]):
    """Makes one call at a time, each within its time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left: list[threading.Thread] = []

    def call(self, what: Callable[[], Answer], within: Seconds) -> Answer:
        """What the call returns or raises. Raises Overdue when it takes longer."""
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= LEFT_AT_MOST:
            raise DeadlineExceeded
        told: queue.SimpleQueue[tuple[Answer, None] | tuple[None, BaseException]] = queue.SimpleQueue()

        def made() -> None:
            try:
                told.put((what(), None))
            except BaseException as error:  # whatever it is, it is the caller's
                told.put((None, error))

        thread = threading.Thread(target=made, name=self._name, daemon=True)
        thread.start()
        try:
            answer, error = told.get(timeout=within)
        except queue.Empty:
            self._left.append(thread)
            raise DeadlineExceeded from None
        if error is not None:
            raise error
        return answer  # type: ignore[return-value] # without an error it is one
