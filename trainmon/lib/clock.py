"""Time as an argument: loops take a Clock, pure functions take an Instant; and dictionaries that keep the newest."""

from __future__ import annotations

import time
from typing import Any, Protocol

# ---- time as an argument ---------------------------------------------------------------------------------------------

Instant = float
"""Unix seconds (UTC)."""

Seconds = float

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
"""In seconds."""


class Clock(Protocol):
    """The source of time for loops. Tests advance their own clock."""

    def now(self) -> Instant: ...

    def monotonic(self) -> Seconds: ...


def clock_difference(theirs: Instant, since: Instant, until: Instant, known: Seconds = 0.0) -> Seconds:
    """Their clock minus ours, as close to the known difference as possible: they have read `theirs` between these two
    times of ours, such as those of a question and of its answer."""
    return min(max(known, theirs - until), theirs - since)


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        return time.time()

    def monotonic(self) -> Seconds:
        return time.monotonic()


# ---- collections that only keep so many of the newest ----------------------------------------------------------------


def drop_oldest(kept: dict[Any, Any], limit: int) -> None:
    """Drop what was added first until no more than `limit` are left."""
    while len(kept) > limit:
        del kept[next(iter(kept))]
