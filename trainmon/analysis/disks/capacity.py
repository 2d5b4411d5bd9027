"""The space of a disk: how many of the next saves fit, and when the disk or its quota is full. Pure.

Checkpoints are written and deleted again. A line through that sawtooth is meaningless, so deletions are found first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from posixpath import dirname
from statistics import StatisticsError, correlation, median
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.lib import DAY, NETWORK_FILESYSTEMS, Instant, Seconds
from trainmon.model import ALIVE, SILENT, Basis, Checkpoints, Disk, Forecast, Run, RunSpec, Series, State

# ---- forecasts when a disk is full, from its history -----------------------------------------------------------------

SHORTEST = 600.0
"""Seconds of history needed for a forecast: with less, one checkpoint looks like a filling disk."""

RATE_SPAN, RATE_SHORTEST = 120.0, 30.0
"""Seconds of history from which the present rate is taken: disks are sampled every 10 s."""

FALLING = 0.25
"""The share of the free space that a disk loses within RATE_SPAN when it is falling: no forecast is as fast as that."""

POINTS = 48
"""Points the slope is taken from: 1,128 pairs cost about 0.2 ms."""

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
    return Rate(slope.middle * DAY, max(0.0, points[-1].used - points[0].used) / max(1.0, -points[0].used))


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
    try:
        return correlation([p.at for p in points], [p.used for p in points]) ** 2
    except StatisticsError:  # nothing has changed
        return 0.0


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


# ---- how many of the next saves fit ----------------------------------------------------------------------------------

RECENT = 12
"""How many complete checkpoints determine the size."""

SAVES = ALIVE | SILENT | {"unknown", "queued"}
"""Verdicts of runs that will save again by themselves."""


class Save(NamedTuple):
    """One of the next saves of a run: what it still needs, and when it begins; None where its cadence is not known."""

    run: str
    bytes: int
    at: Instant | None
    number: int
    """1 is the run's next."""
    size: int
    """How large it will be."""


class Fit(NamedTuple):
    """How many of the next saves fit, all runs of the disk together, and the first that does not."""

    fitting: int
    first: Save | None
    next_at: Instant | None
    """When the next save of all begins."""
    bytes: int
    """How large the largest checkpoint is."""


def is_shared(disk: Disk) -> bool:
    """Whether many hosts see it as one disk, and write to it."""
    return disk.filesystem in NETWORK_FILESYSTEMS


def saved_on(disk: Disk, state_disks: Mapping[str, Disk], runs: Iterable[Run]) -> list[Run]:
    """The runs whose checkpoints are on this disk: it is the innermost mount above them."""
    saved = ((run, run.checkpoints) for run in runs)
    return [run for run, one in saved if one is not None and is_on(disk, one.path, one.host, state_disks)]


def is_on(disk: Disk, path: str, host: str, disks: Mapping[str, Disk]) -> bool:
    """Whether a path of a host is on this disk: it is the innermost mount above it."""
    mount = disk.mount or disk.path
    if not (lies_on(path, disk.path) or lies_on(path, mount)):
        return False
    if disk.host != host and not is_shared(disk):
        return False
    others = (other.mount or other.path for other in disks.values() if other.host == host)
    return all(len(other) <= len(mount) for other in others if lies_on(path, other))


def directories_of(run: RunSpec) -> tuple[str, ...]:
    """The directories to which a run writes: of its checkpoints, its log and its switches."""
    files = (run.log, run.kill_switch, run.save_switch)
    paths = (run.checkpoints, *(None if path is None else _directory(path) for path in files))
    return tuple(path for path in paths if path is not None and path.startswith("/"))


def _directory(path: str) -> str:
    """The nearest parent directory without a wildcard."""
    directory = dirname(path)
    while any(mark in directory for mark in "*?["):
        directory = dirname(directory)
    return directory


def lies_on(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def size_of(found: Checkpoints) -> int | None:
    """How large its next checkpoint may be: the largest of the recent whole ones."""
    sizes = (one.bytes for one in found.list if one.is_whole and one.bytes)
    return max((found.bytes or 0, *islice(sizes, RECENT))) or None


def largest(disk: Disk, disks: Mapping[str, Disk], runs: Iterable[Run]) -> int | None:
    """The largest recent checkpoint that is saved on this disk."""
    sizes = (size_of(run.checkpoints) or 0 for run in saved_on(disk, disks, runs) if run.checkpoints is not None)
    return max(sizes, default=0) or None


def checkpoints_that_fit(disk: Disk, disks: Mapping[str, Disk], runs: Iterable[Run]) -> int | None:
    """How many checkpoints of the largest size still fit on this disk; None if no size is known."""
    size = largest(disk, disks, runs)
    return None if disk.left_bytes is None or size is None else disk.left_bytes // size


def fit(disk: Disk, state: State, wanted: int, now: Instant) -> Fit | None:
    """Whether the next `wanted` saves of each run that saves here have room, in the order in which they come."""
    if disk.left_bytes is None:
        return None
    saves = [
        save for run in saved_on(disk, state.disks, state.runs.values()) if run.verdict in SAVES
        for save in _next(run, wanted, now)
    ]  # fmt: skip
    if not saves:
        return None
    saves.sort(key=lambda save: (save.at is None, save.at or 0.0, save.number, save.run))
    fitting = sum(needed <= disk.left_bytes for needed in accumulate(save.bytes for save in saves))
    first = saves[fitting] if fitting < len(saves) else None
    return Fit(fitting, first, saves[0].at, max(save.bytes for save in saves))


def _next(run: Run, wanted: int, now: Instant) -> list[Save]:
    found = run.checkpoints
    size = None if found is None else size_of(found)
    if found is None or size is None:
        return []
    writing, every = found.writing, found.every_s
    last_at = found.committed.at if found.committed is not None else None
    saves = [
        Save(
            run.name,
            size,
            None if every is None or last_at is None else max(now, last_at + every * number),
            number,
            size,
        )
        for number in range(1, wanted + 1)
    ]
    if writing is not None and saves:  # what it has written so far is no longer free
        saves[0] = saves[0]._replace(bytes=max(0, size - (writing.bytes or 0)), at=writing.began_at or now)
    return saves


# ---- when it is full -------------------------------------------------------------------------------------------------

RESIZED = ("ext4", "xfs", "btrfs", "tmpfs", "lustre")
"""Filesystems whose size changes only when somebody changes it; of a ZFS dataset it is what others leave of a pool."""


NO_SERIES = Series((), ())


def with_trend(disk: Disk, series: Callable[[str], Series], now: Instant, recent: Series = NO_SERIES) -> Disk:
    """The disk with what its history says; `series` gives a week of one of its numbers, and `recent` is what was free
    in the last two minutes. Of the disk and its quota what comes first counts."""
    quota = disk.quota

    def measure(metric: str, left: float | None, size: float | None) -> Forecast | None:
        past = series(metric)
        if metric == "free_bytes" and disk.filesystem in RESIZED:
            past = of_one_size(past, series("size_bytes"))
        return forecast(past.offsets, past.values, now, left, size=size, lag=disk.lag)

    space = measure("free_bytes", disk.usable_free_bytes, disk.total_bytes)
    files = measure("free_inodes", disk.free_inodes, disk.total_inodes)
    full, no_inodes = space, files
    if quota is not None:
        limits = [
            min((limit for one in quota.allowances if (limit := getattr(one, name)) is not None), default=None)
            for name in ("hard_bytes", "hard_inodes")
        ]
        full = sooner(full, measure("quota_left_bytes", quota.left_bytes, limits[0]))
        no_inodes = sooner(no_inodes, measure("quota_left_inodes", quota.left_inodes, limits[1]))
    present = rate(recent.offsets, recent.values, disk.total_bytes)
    is_falling = present is not None and present.lost >= FALLING
    recent_per_day = present.per_day if present is not None and (space is None or is_falling) else None
    return replace(
        disk,
        bytes_per_day=None if space is None else space.per_day,
        recent_per_day=recent_per_day,
        falling_full_at=falling_full_at(disk, recent_per_day) if is_falling else None,
        inodes_per_day=None if files is None else files.per_day,
        full_at=None if full is None else full.full_at,
        inodes_full_at=None if no_inodes is None else no_inodes.full_at,
        forecast=full,
        inodes_forecast=no_inodes,
    )


def falling_full_at(disk: Disk, per_day: float | None) -> Instant | None:
    """When it is full at the present rate."""
    left = disk.usable_free_bytes
    return None if left is None or not per_day or per_day <= 0 else disk.at + DAY * left / per_day


def of_one_size(free: Series, sizes: Series) -> Series:
    """What had been free, had the disk always been as large as it is: one that was made larger was not emptied."""
    if len(sizes.values) < 2:
        return free
    lacked = [sizes.values[-1] - size for size in sizes.values]
    values = [
        value + lacked[max(0, bisect_right(sizes.offsets, at) - 1)]
        for at, value in zip(free.offsets, free.values, strict=True)
    ]
    return Series(free.offsets, tuple(values))


def sooner(disk: Forecast | None, quota: Forecast | None) -> Forecast | None:
    """The forecast that is full first."""
    if quota is None or quota.full_at is None:
        return disk
    if disk is None or disk.full_at is None or quota.full_at < disk.full_at:
        return replace(quota, of="quota")
    return disk
