"""Time as an argument: loops take a Clock, pure functions take an Instant."""

from __future__ import annotations

import time
from typing import Protocol

Instant = float
"""Unix seconds (UTC)."""

Seconds = float


class Clock(Protocol):
    """The source of time for loops. Tests advance their own clock."""

    def now(self) -> Instant: ...

    def monotonic(self) -> Seconds: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        return time.time()

    def monotonic(self) -> Seconds:
        return time.monotonic()
