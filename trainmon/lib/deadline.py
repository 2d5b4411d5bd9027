"""Calls with a deadline, whatever hangs: each runs on a thread that is abandoned when it takes too long.

A socket's timeout bounds one read, not all of them, and name resolution has none at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from trainmon.lib.clock import Seconds

Answer = TypeVar("Answer")

MAX_ABANDONED = 4
"""The maximum number of abandoned calls that still hang. No call is made beyond it until one of them ends."""


class DeadlineExceeded(Exception):
    """The call did not end in time. It may still end later."""


class DeadlineRunner(Generic[Answer]):
    """Makes one call at a time, each with a deadline."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._abandoned: list[threading.Thread] = []

    def call(self, what: Callable[[], Answer], within: Seconds) -> Answer:
        """What the call returns or raises. Raises Overdue when it takes longer."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= MAX_ABANDONED:
            raise DeadlineExceeded
        result: queue.SimpleQueue[tuple[Answer, None] | tuple[None, BaseException]] = queue.SimpleQueue()

        def made() -> None:
            try:
                result.put((what(), None))
            except BaseException as error:  # whatever it is, it is the caller's
                result.put((None, error))

        thread = threading.Thread(target=made, name=self._name, daemon=True)
        thread.start()
        try:
            answer, error = result.get(timeout=within)
        except queue.Empty:
            self._abandoned.append(thread)
            raise DeadlineExceeded from None
        if error is not None:
            raise error
        return answer  # type: ignore[return-value] # without an error it is one
