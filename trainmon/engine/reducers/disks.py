"""Reducers of disk samples and quotas: State.disks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from trainmon.engine.reducers.batch import EventBatch
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant
from trainmon.model import Disk, DiskSample, DisksReleased, NodeReading, Quota, QuotaRead

UNWATCHED_AFTER = 90.0
"""Seconds without a sample after which a disk is dropped, if its host still reports other disks: the host read it as a
stand-in. Watched disks are sampled every 10 s, hung ones every 30 s. While SSH fails, Prometheus may report others."""


def sampled(batch: EventBatch, event: NodeReading, samples: tuple[DiskSample, ...]) -> None:
    disks, usable, lags = batch.writable("disks"), batch.current("usable"), batch.current("lags")
    quotas = batch.current("quotas")
    for sample in samples:
        disk = _disk(event, sample, usable.get(sample.path, 1.0), disks.get(f"{event.node}:{sample.path}"))
        if disk.key in batch.current("released_disks"):
            del batch.writable("released_disks")[disk.key]
        disks[disk.key] = replace(disk, lag=lags.get(disk.path, 0.0), quota=_quota_of(quotas, disk))
    node = batch.current("nodes").get(event.node)
    is_failing = node is not None and "ssh" in node.troubles
    for key, disk in list(disks.items()):
        if disk.host == event.node and event.received_at - disk.at > UNWATCHED_AFTER and not is_failing:
            del disks[key]


def released(batch: EventBatch, event: DisksReleased, now: Instant) -> None:
    """Drop the disks that a stand-in has read, as the first host reads them again, and those that are named by their
    mounts now."""
    for path in event.disks:
        key = f"{event.node}:{path}"
        batch.writable("disks").pop(key, None)
        batch.writable("released_disks")[key] = now


def quota_read(batch: EventBatch, event: QuotaRead) -> None:
    """Apply the answer of a quota command to the disks of its path."""
    quota = event.quota
    batch.writable("quotas")[f"{quota.cluster if event.shared else quota.host}:{quota.path}"] = quota
    for key, disk in batch.current("disks").items():
        if disk.path == quota.path and _quota_of(batch.current("quotas"), disk) is quota:
            batch.writable("disks")[key] = replace(disk, quota=quota)


def _quota_of(quotas: Mapping[str, Quota], disk: Disk) -> Quota | None:
    return quotas.get(disk.key) or quotas.get(f"{disk.cluster}:{disk.path}")


def _disk(event: NodeReading, sample: DiskSample, usable: float, old: Disk | None) -> Disk:
    """The disk after a sample. It keeps its trend until the next forecast, and its mount while it does not answer."""
    reserve = 0 if sample.total_bytes is None else round(sample.total_bytes * (1 - usable))
    old = old or Disk(path=sample.path, host=event.node, cluster=event.cluster, at=event.received_at)
    changes = asdict(sample) | {
        "cluster": event.cluster,
        "at": event.received_at,
        "error": None if sample.error is None else cleaned(sample.error),
        "mount": sample.mount or old.mount,
        "filesystem": sample.filesystem or old.filesystem,
        "writable_at": event.received_at if sample.read_only is False else old.writable_at,
        "usable_free_bytes": None if sample.free_bytes is None else max(0, sample.free_bytes - reserve),
    }
    return replace(old, **changes)
