"""Forecasts when a disk is full, from its history. Pure.

Checkpoints are written and deleted again. A line through that sawtooth is meaningless, so deletions are found first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from trainmon.lib import Instant, Seconds
from trainmon.model import Basis, Forecast

SHORTEST = 600.0
"""Seconds of history needed for a forecast: with less, one checkpoint looks like a filling disk."""

RATE_SPAN, RATE_SHORTEST = 120.0, 30.0
"""Seconds of history from which the present rate is taken: disks are sampled every 10 s."""

FALLING = 0.25
"""The share of the free space that a disk loses within RATE_SPAN when it is falling: no forecast is as fast as that."""

POINTS = 48
"""Points the slope is taken from: 1,128 pairs cost about 0.2 ms."""

DAY = 86_400.0

FAST = 6 * 3_600.0
"""A growth of this long that nothing has interrupted counts beside that of the whole day."""
FAST_FIT = 0.95

DROP = 0.003
"""The share of a disk that must go at once to be a deletion, and not the ebb of small files."""
UNSTEADY = 6.0
"""And at least this many times the usual change between two samples."""

ENOUGH = 2
"""With this many complete cycles, the forecast uses what remains after each deletion."""
CYCLES = 8
"""The newest of them are: a run's retention may have changed since."""
OVERDUE = 1.5
"""Times the longest cycle without a deletion after which deletions seem to have stopped; and times the longest pause
between two rises after which nothing grows any more."""
BURST = 3_600.0
"""The shortest such pause: a single copy has no pauses to learn from."""


class Point(NamedTuple):
    """What is used at a time, against any zero."""

    at: Seconds
    used: float


class Slope(NamedTuple):
    """Growth a second: the median of the slopes between all pairs of points, and what half of them lie between."""

    middle: float
    low: float
    high: float


def forecast(
    offsets: Sequence[Seconds],
    free: Sequence[float],
    now: Instant,
    left: float | None,
    *,
    size: float | None = None,
    lag: Seconds = 0.0,
) -> Forecast | None:
    """The forecast, from at least SHORTEST seconds of history.

    `left`: what may still be used (free bytes, or less if only a share is usable). `size`: that of the disk. `lag`: how
    old the numbers may be; shorter changes are ignored.
    """
    # Of a disk where hardly anything happens, few points show all: most disks of a cluster are like that.
    is_calm = size is not None and len(free) > 0 and max(free) - min(free) < DROP * size
    step = max(1, len(free) // (2 * POINTS)) if is_calm else 1
    points = [Point(at, -n) for at, n in zip(offsets[::step], free[::step], strict=True) if not math.isnan(n)]
    points = thinned(points, lag)
    if len(points) < 3 or points[-1].at - points[0].at < max(SHORTEST, 3 * lag):
        return None
    least = _least(points, size)
    lows = [low for _, low in deletions(points, least)]
    return _sawtooth(points, lows, now, left, least) if lows else _undisturbed(points, now, left, least)


class Rate(NamedTuple):
    """The growth of the last two minutes, before or beside a forecast."""

    per_day: float
    lost: float
    """The share of the free space at their beginning that was used up in them."""


def rate(offsets: Sequence[Seconds], free: Sequence[float], size: float | None) -> Rate | None:
    """From at least RATE_SHORTEST seconds of samples."""
    points = [Point(at, -n) for at, n in zip(offsets, free, strict=True) if not math.isnan(n)]
    if len(points) < 3 or points[-1].at - points[0].at < RATE_SHORTEST:
        return None
    slope = _growth(points, DROP * size if size else 0.0)
    at_first = max(1.0, -points[0].used)
    return Rate(slope.middle * DAY, max(0.0, points[-1].used - points[0].used) / at_first)


def thinned(points: list[Point], lag: Seconds) -> list[Point]:
    """The last point of each `lag`: the statistics of the filesystem may be that old."""
    return points if lag <= 0 else list({math.floor(point.at / lag): point for point in points}.values())


def _least(points: Sequence[Point], size: float | None) -> float:
    """How much must be freed at once to count as a deletion."""
    changes = median(abs(later.used - earlier.used) for earlier, later in pairwise(points))
    values = [point.used for point in points]
    return max(DROP * size if size else 0.05 * (max(values) - min(values)), UNSTEADY * changes)


def deletions(points: Sequence[Point], least: float) -> list[tuple[Point, Point]]:
    """The deletions: the highest point before the use fell by more than `least`, and the lowest before it rose again by
    as much."""
    found: list[tuple[Point, Point]] = []
    high = low = points[0]
    is_falling = False
    for point in points:
        if is_falling:
            if point.used <= low.used:
                low = point
                found[-1] = (high, low)
            elif point.used - low.used > least:
                is_falling, high = False, point
        elif point.used >= high.used:
            high = point
        elif high.used - point.used > least:
            is_falling, low = True, point
            found.append((high, low))
    return found


# ---- nothing is deleted ----------------------------------------------------------------------------------------------


def _undisturbed(points: Sequence[Point], now: Instant, left: float | None, least: float) -> Forecast:
    """The growth of a day; that of the last hours where it is steady and more."""
    day = [point for point in points if point.at >= points[-1].at - DAY]
    recent = [point for point in day if point.at >= points[-1].at - FAST]
    slope, taken = _growth(day, least), day
    if 2 < len(recent) < len(day):
        fast = _growth(recent, least)
        if fast.middle > slope.middle and _fit(recent) >= FAST_FIT:
            slope, taken = fast, recent
    if _is_over(day, least):
        slope = Slope(0.0, 0.0, 0.0)
    return _forecast(slope, taken, now, left, "nothing-deleted", 0, points)


def _is_over(points: Sequence[Point], least: float) -> bool:
    """Whether what rose has stopped for longer than it ever paused: a dataset that was copied once is no growth."""
    if points[-1].used - points[0].used < 3 * least:
        return False
    level, rises = points[0].used, list[Seconds]()
    for point in points:
        if point.used - level > least:
            level = point.used
            rises.append(point.at)
    pauses = [later - earlier for earlier, later in pairwise(rises)]
    return bool(rises) and points[-1].at - rises[-1] > OVERDUE * max([BURST, *pauses])


def _growth(points: Sequence[Point], least: float) -> Slope:
    """The slope of a ramp. A few large steps have most pairs within a step: then from end to end."""
    slope, rise = theil_sen(points), points[-1].used - points[0].used
    return _end_to_end(points, slope) if slope.middle <= 0 and rise > least else slope


def _end_to_end(points: Sequence[Point], slope: Slope) -> Slope:
    whole = (points[-1].used - points[0].used) / (points[-1].at - points[0].at)
    return Slope(max(slope.middle, whole), min(slope.low, whole), max(slope.high, whole))


def theil_sen(points: Sequence[Point]) -> Slope:
    some = points[:: -(-len(points) // POINTS)]
    slopes = sorted(
        (later.used - earlier.used) / (later.at - earlier.at)
        for i, later in enumerate(some)
        for earlier in some[:i]
        if later.at > earlier.at
    )
    if not slopes:
        return Slope(0.0, 0.0, 0.0)
    return Slope(median(slopes), slopes[len(slopes) // 4], slopes[3 * len(slopes) // 4])


def _fit(points: Sequence[Point]) -> float:
    """How much of the change is growth along one line: R²."""
    mean_at, mean_used = fmean(p.at for p in points), fmean(p.used for p in points)
    spread = sum((p.at - mean_at) ** 2 for p in points)
    change = sum((p.used - mean_used) ** 2 for p in points)
    together = sum((p.at - mean_at) * (p.used - mean_used) for p in points)
    return together**2 / (spread * change) if spread and change else 0.0


# ---- what is written is deleted again --------------------------------------------------------------------------------


def _sawtooth(
    points: Sequence[Point], lows: Sequence[Point], now: Instant, left: float | None, least: float
) -> Forecast:
    """The growth of what remains after each deletion, as long as deletions go on."""
    cycles = [later.at - earlier.at for earlier, later in pairwise(lows)][-CYCLES:]
    is_known = len(cycles) >= ENOUGH
    longest = max(cycles if is_known else [*cycles, lows[0].at - points[0].at])
    if points[-1].at - lows[-1].at > OVERDUE * longest:
        ramp = [point for point in points if point.at >= lows[-1].at]
        return _forecast(_end_to_end(ramp, theil_sen(ramp)), ramp, now, left, "stopped", len(lows), points)
    if not is_known:
        span, per_day = points[-1].at - points[0].at, theil_sen(points).middle * DAY
        return Forecast(basis="cycles", span=span, cycles=len(lows), per_day=per_day)
    found = _over_floors(points, lows, now, left, least)
    if found.full_at is not None:
        deeper = [low for _, low in deletions(lows, least)]  # hourly deletions may hide that much goes once a day
        pauses = [later.at - earlier.at for earlier, later in pairwise(deeper)]
        if len(deeper) > ENOUGH and points[-1].at - deeper[-1].at <= OVERDUE * max(pauses):
            return _over_floors(points, deeper, now, left, least)
    return found


def _over_floors(
    points: Sequence[Point], lows: Sequence[Point], now: Instant, left: float | None, least: float
) -> Forecast:
    """The line under the newest lows, and what rides on it at most. Checkpoints are not all of one size: a rise that
    would be no deletion the other way round is none."""
    floors = [low for low in lows if low.at >= lows[-1].at - FAST]
    if len(floors) <= CYCLES:
        floors = list(lows[-CYCLES - 1 :])
    slope = theil_sen(floors)
    level = median(low.used - slope.middle * low.at for low in floors)
    unsteady = median(abs(low.used - slope.middle * low.at - level) for low in floors)
    if slope.middle * (floors[-1].at - floors[0].at) <= max(least, 3 * unsteady) or _is_over(floors, least):
        slope = Slope(0.0, 0.0, 0.0)
        level = median(low.used for low in floors)
    rides = max(p.used - level - slope.middle * p.at for p in points if p.at >= floors[0].at)
    last = points[-1]
    remains = None if left is None else left + last.used - level - slope.middle * last.at - rides
    return _forecast(slope, floors, now, remains, "cycles", len(lows), points)


def _forecast(
    slope: Slope,
    taken: Sequence[Point],
    now: Instant,
    left: float | None,
    basis: Basis,
    cycles: int,
    points: Sequence[Point],
) -> Forecast:
    return Forecast(
        full_at=_full_at(slope.middle, now, left),
        basis=basis,
        span=points[-1].at - points[0].at,
        earliest=_full_at(slope.high, now, left),
        latest=_full_at(slope.low, now, left),
        fit=_fit(taken),
        cycles=cycles,
        per_day=slope.middle * DAY,
    )


def _full_at(slope: float, now: Instant, left: float | None) -> Instant | None:
    return now + max(0.0, left) / slope if slope > 0 and left is not None else None
