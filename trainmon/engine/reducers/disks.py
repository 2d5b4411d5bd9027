"""What a probe says of disks, and a quota command of a path → the new disks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from trainmon.engine.reducers.batch import EventBatch
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant
from trainmon.model import Disk, DiskSample, NodeReading, Quota, QuotaRead, StandInEnded

UNWATCHED_AFTER = 90.0
"""Seconds after which a disk is no longer watched, when its host tells of others: it was read for another host. All
that are watched come every 10 s, and a hung one every 30 s."""


def looked_at(batch: EventBatch, event: NodeReading, samples: tuple[DiskSample, ...]) -> None:
    disks, usable, lags = batch.writable("disks"), batch.current("usable"), batch.current("lags")
    quotas = batch.current("quotas")
    for sample in samples:
        disk = _kept(disks.get(f"{event.node}:{sample.path}"), _disk(event, sample, usable.get(sample.path, 1.0)))
        if disk.key in batch.current("handed_back"):
            del batch.writable("handed_back")[disk.key]
        disks[disk.key] = replace(disk, lag=lags.get(disk.path, 0.0), quota=_quota_of(quotas, disk))
    for key, disk in list(disks.items()):
        if disk.host == event.node and event.received_at - disk.at > UNWATCHED_AFTER:
            del disks[key]


def handed_back(batch: EventBatch, event: StandInEnded, now: Instant) -> None:
    """What was told in the place of another host is gone at once: that one judges its paths again."""
    for path in event.disks:
        key = f"{event.node}:{path}"
        batch.writable("disks").pop(key, None)
        batch.writable("handed_back")[key] = now


def quota_seen(batch: EventBatch, event: QuotaRead) -> None:
    """What is allowed there, beside what is free."""
    quota = event.quota
    batch.writable("quotas")[f"{quota.cluster if event.shared else quota.host}:{quota.path}"] = quota
    for key, disk in batch.current("disks").items():
        if disk.path == quota.path and _quota_of(batch.current("quotas"), disk) is quota:
            batch.writable("disks")[key] = replace(disk, quota=quota)


def _quota_of(quotas: Mapping[str, Quota], disk: Disk) -> Quota | None:
    return quotas.get(disk.key) or quotas.get(f"{disk.cluster}:{disk.path}")


def _disk(event: NodeReading, sample: DiskSample, usable: float) -> Disk:
    free = sample.free_bytes
    reserve = 0 if sample.total_bytes is None else round(sample.total_bytes * (1 - usable))
    return Disk(
        host=event.node,
        cluster=event.cluster,
        path=sample.path,
        at=event.received_at,
        state=sample.state,
        error=None if sample.error is None else cleaned(sample.error),
        mount=sample.mount,
        filesystem=sample.filesystem,
        read_only=sample.read_only,
        writable_at=event.received_at if sample.read_only is False else None,
        total_bytes=sample.total_bytes,
        free_bytes=free,
        usable_free_bytes=None if free is None else max(0, free - reserve),
        total_inodes=sample.total_inodes,
        free_inodes=sample.free_inodes,
    )


def _kept(old: Disk | None, new: Disk) -> Disk:
    """A disk keeps its trend until the engine measures it anew, and what it is while it does not answer."""
    if old is None:
        return new
    return replace(
        new,
        mount=new.mount or old.mount,
        filesystem=new.filesystem or old.filesystem,
        writable_at=new.writable_at or old.writable_at,
        bytes_per_day=old.bytes_per_day,
        inodes_per_day=old.inodes_per_day,
        full_at=old.full_at,
        inodes_full_at=old.inodes_full_at,
        forecast=old.forecast,
        inodes_forecast=old.inodes_forecast,
    )
