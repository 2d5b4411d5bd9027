"""Filesystems of node_exporter become the watched disks of a node, as a probe samples them. Pure.

node_exporter exports mount points, and does not say on which of them a path lies: it is the longest one above the path.
Only `/` itself is taken to lie on `/`. Any other path may be a link, or a mount that is not exported, such as /dev/shm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import dirname, normpath

from trainmon.model import DiskSample

FAILED = "node_exporter gets no answer, or an error"

NEEDED = {"total_bytes", "device_error"}
"""Without one of them, nothing can be said: a server may keep only some metrics."""

Filesystem = tuple[str, str, str]
"""Its mount point, type and device."""


def mount_points(paths: Iterable[str]) -> list[str]:
    """The directories at which the filesystems of these paths may be mounted."""
    return sorted({point for path in paths for point in _above(path)})


def samples(paths: Sequence[str], filesystems: Mapping[Filesystem, Mapping[str, float]]) -> Iterator[DiskSample]:
    """The disks of these paths, those that are exported."""
    mounted = {point: (kind, fields) for (point, kind, _), fields in filesystems.items() if fields.keys() & NEEDED}
    for path in paths:
        point = next((point for point in _above(path) if point in mounted), None)
        if point is not None:
            yield _sample(path, point, *mounted[point])


def value(text: str) -> float | None:
    """A number of bytes or inodes. It may be of any size: some filesystems have more than 2^53 bytes."""
    found = float(text)
    return found if math.isfinite(found) else None


def _above(path: str) -> Iterator[str]:
    """The path and its parents, without `/`."""
    path = "/" + normpath(path).lstrip("/")
    yield path
    while (path := dirname(path)) != "/":
        yield path


def _sample(path: str, mount: str, filesystem: str, fields: Mapping[str, float]) -> DiskSample:
    if fields.get("device_error"):
        return DiskSample(path, "error", FAILED, mount, filesystem)
    total, free = fields.get("total_bytes") or None, fields.get("free_bytes")
    files, free_files = fields.get("total_inodes") or None, fields.get("free_inodes")
    if total is not None and free is not None and free > total:
        free = 0.0  # a negative count: the reserve or the quota is exceeded
    if files is not None and free_files is not None and free_files > files:
        files = free_files = None  # CephFS says -1: their number is not fixed
    return DiskSample(
        path,
        mount=mount,
        filesystem=filesystem,
        read_only=bool(fields["read_only"]) if "read_only" in fields else None,
        total_bytes=_whole(total),
        free_bytes=None if total is None else _whole(free),
        total_inodes=_whole(files),
        free_inodes=None if files is None else _whole(free_files),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
