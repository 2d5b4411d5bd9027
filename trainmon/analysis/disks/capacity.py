"""The space of a disk: how many of the next saves fit, and when the disk or its quota is full. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, islice
from posixpath import dirname
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.disks.forecast import DAY, FALLING, forecast, rate
from trainmon.lib import NETWORK_FILESYSTEMS, Instant
from trainmon.model import Checkpoints, Disk, Forecast, Run, RunSpec, Series, State

RECENT = 12
"""How many complete checkpoints determine the size."""

SAVES = frozenset({"healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "unknown", "queued"})
"""Verdicts of runs that will save again by themselves."""


class Save(NamedTuple):
    """One of the next saves of a run: what it still needs, and when it begins; None where its cadence is not known."""

    run: str
    bytes: int
    at: Instant | None
    number: int
    """1 is the run's next."""


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
        Save(run.name, size, None if every is None or last_at is None else max(now, last_at + every * number), number)
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
