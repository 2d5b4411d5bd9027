"""From the history of a disk to its trend, and when it is full if the trend goes on. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from trainmon.clock import Instant, Seconds

SHORTEST = 600.0
"""Seconds of history below which no trend is told: one checkpoint would look like a filling disk."""

POINTS = 48
"""Points the slope is taken from: 1,128 pairs cost about 0.2 ms."""

DAY = 86_400.0


class Trend(NamedTuple):
    """Growth of what is used, a day, and when nothing is left at that pace; None where it cannot be told."""

    per_day: float | None = None
    full_at: Instant | None = None


def trend(offsets: Sequence[Seconds], free: Sequence[float], now: Instant, left: float | None) -> Trend:
    """The median of the slopes between all pairs of points (Theil-Sen), told from at least ten minutes of history.

    `left` is what may still be used (free bytes, or less where only a share is usable). It assumes that nothing is
    deleted beyond what the history shows.
    """
    points = [(at, value) for at, value in zip(offsets, free, strict=True) if not math.isnan(value)]
    if len(points) < 3 or points[-1][0] - points[0][0] < SHORTEST:
        return Trend()
    points = points[:: max(1, len(points) // POINTS)]
    slope = median(
        (value - earlier) / (at - before)
        for i, (at, value) in enumerate(points)
        for before, earlier in points[:i]
        if at > before
    )
    full_at = now + left / -slope if slope < 0 and left is not None else None
    return Trend(per_day=-slope * DAY, full_at=full_at)
