"""Whether a node's memory leaks, and when it is exhausted: from the least that was in use every ten minutes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from trainmon.clock import Instant, Seconds

BUCKETS = 7
"""An hour of floors and the beginning of the next: a start-up, a cache that fills and a long save are shorter."""

WINDOW = 19
"""Three hours: a leak that began an hour ago must not be hidden by the calm before."""

GROWN = 0.02
"""Of the whole memory, over the window: less is noise."""

STEADY = 0.5
"""Of the pace of the first half that the second must still have: a cache fills ever slower, a leak does not."""


class Leak(NamedTuple):
    """How fast it grows, since when that is seen, and when nothing is left."""

    mib_per_hour: float
    since: Instant
    full_at: Instant


def leak(floors: Sequence[tuple[Instant, int]], total_mib: int, now: Instant) -> Leak | None:
    """A memory whose floor rises ten minutes for ten minutes, and not ever slower. The last floor is not over yet."""
    if len(floors) <= BUCKETS:
        return None
    whole = floors[-WINDOW - 1 : -1]
    first = len(whole) - 1
    while first and whole[first - 1][1] < whole[first][1]:
        first -= 1
    rising = whole[first:]
    if len(rising) < BUCKETS or rising[-1][1] - rising[0][1] < GROWN * total_mib:
        return None
    pace = _pace(rising)
    half = len(rising) // 2
    if _pace(rising[half:]) < STEADY * _pace(rising[: half + 1]):
        return None
    at, used = rising[-1]
    if floors[-1][1] < used:  # the newest is lower: it has been let go
        return None
    return Leak(pace * 3_600.0, rising[0][0], max(now, at) + max(0.0, total_mib - max(used, floors[-1][1])) / pace)


def _pace(floors: Sequence[tuple[Instant, int]]) -> Seconds:
    """MiB a second: the median of the steps, so that one large one is no pace."""
    return median((b[1] - a[1]) / max(1.0, b[0] - a[0]) for a, b in pairwise(floors))
