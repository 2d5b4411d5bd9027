"""From the histories of a disk and of its quota to its forecast: what comes first counts. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from msgspec.structs import replace

from trainmon.analysis.disks.forecast import Trend, trend
from trainmon.lib import Instant
from trainmon.model import Disk, Forecast, Series

RESIZED = ("ext4", "xfs", "btrfs", "tmpfs", "lustre")
"""Filesystems whose size changes only when somebody changes it; of a ZFS dataset it is what others leave of a pool."""


def with_trend(disk: Disk, series: Callable[[str], Series], now: Instant) -> Disk:
    """The disk with what its history says; `series` gives a week of one of its numbers. Of the disk and its quota what
    comes first counts."""
    quota = disk.quota

    def measure(metric: str, left: float | None, size: float | None) -> Trend:
        past = series(metric)
        if metric == "free_bytes" and disk.filesystem in RESIZED:
            past = of_one_size(past, series("size_bytes"))
        return trend(past.offsets, past.values, now, left, size=size, lag=disk.lag)

    space = measure("free_bytes", disk.usable_free_bytes, disk.total_bytes)
    files = measure("free_inodes", disk.free_inodes, disk.total_inodes)
    full, no_inodes = space.forecast, files.forecast
    if quota is not None:
        limits = [
            min((limit for one in quota.allowances if (limit := getattr(one, name)) is not None), default=None)
            for name in ("hard_bytes", "hard_inodes")
        ]
        full = sooner(full, measure("quota_left_bytes", quota.left_bytes, limits[0]).forecast)
        no_inodes = sooner(no_inodes, measure("quota_left_inodes", quota.left_inodes, limits[1]).forecast)
    return replace(
        disk,
        bytes_per_day=space.per_day,
        inodes_per_day=files.per_day,
        full_at=None if full is None else full.full_at,
        inodes_full_at=None if no_inodes is None else no_inodes.full_at,
        forecast=full,
        inodes_forecast=no_inodes,
    )


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
    """The forecast of the two whose end comes first."""
    if quota is None or quota.full_at is None:
        return disk
    if disk is None or disk.full_at is None or quota.full_at < disk.full_at:
        return replace(quota, of="quota")
    return disk
