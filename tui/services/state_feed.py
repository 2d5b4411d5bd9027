"""Passes States from another thread to the app: the latest wins, at most one message waits, one paint a second."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainmon.lib import Seconds
from trainmon.model import State

PAINT_EVERY: Seconds = 1.0
"""Often enough for a reader, and seldom enough for a slow SSH connection."""


class StateFeed:
    """Holds the latest State; `post` is called once until it is collected."""

    def __init__(self, post: Callable[[], object]) -> None:
        self._post = post
        self._lock = threading.Lock()
        self._latest: State | None = None

    def put(self, state: State) -> None:
        """From any thread. Never blocks, and never raises for an app that is gone."""
        with self._lock:
            is_first, self._latest = self._latest is None, state
        if is_first:
            self._post()

    def collect(self) -> State | None:
        """The latest State, once."""
        with self._lock:
            latest, self._latest = self._latest, None
        return latest


def wait_before_paint(painted_at: Seconds | None, key_at: Seconds, now: Seconds) -> Seconds:
    """Seconds to wait until the next paint: none after a key press, else what is left of the second."""
    return 0.0 if painted_at is None or key_at > painted_at else max(0.0, painted_at + PAINT_EVERY - now)
