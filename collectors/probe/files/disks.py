"""Space on the watched paths: statvfs and /proc/self/mountinfo. Runs on the node: Python 3.6, standard library only.

Each path is an operation: statvfs on a dead mount never returns, and must cost only that path.
"""

import functools
import os

from collectors.probe import paths
from collectors.probe.stdlib import Any, Line, Mapping, Operation

EVERY = 10.0
"""Seconds between two samples of one path: statvfs is a round trip to a metadata server that the training also uses."""

MOUNTS = "/proc/self/mountinfo"

UNSHARED = frozenset(("aufs", "bcachefs", "btrfs", "fuse.fuse-overlayfs", "overlay", "ramfs", "tmpfs", "zfs"))
"""Types of filesystems that no other host mounts, although their files have no block device."""


class Mount:
    """One line of mountinfo."""

    __slots__ = ("device", "filesystem", "point", "read_only")

    def __init__(self, line: bytes) -> None:
        left, _, right = line.partition(b" - ")
        fields = left.split(b" ")
        self.device = fields[2]
        self.point = unescaped(fields[4])
        filesystem, _, options = right.partition(b" ")
        self.filesystem = paths.shown(filesystem)
        self.read_only = b"ro" in fields[5].split(b",") or b"ro" in options.strip().split(b" ")[-1].split(b",")

    def holds(self, path: bytes) -> bool:
        return path == self.point or path.startswith(self.point.rstrip(b"/") + b"/")


def unescaped(text: bytes) -> bytes:
    """Mountinfo writes space, tab, newline and backslash as three octal digits."""
    first, *others = text.split(b"\\")
    return first + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in others)


def mount_of(path: bytes, device: str, lines: "list[bytes]") -> "Mount | None":
    """The mount that shows this real path: the longest mount point above it; the last one of several is on top.

    A mount of the path's own device is preferred: a longer one may be hidden under a later mount of its parent.
    """
    mounts = [mount for mount in reversed([Mount(line) for line in lines]) if mount.holds(path)]
    return max(mounts, key=lambda mount: (mount.device == device.encode(), len(mount.point)), default=None)


def mount_at(path: bytes, device: int, mounts: str) -> "Mount | None":
    """The mount that shows this real path, which is on this device."""
    with open(mounts, "rb") as table:
        return mount_of(path, "%d:%d" % (os.major(device), os.minor(device)), table.read().splitlines())


def is_on_this_host(path: bytes, found: os.stat_result) -> bool:
    """Whether no other host sees a file: it is on a block device, or on a filesystem of this host's own."""
    return os.major(found.st_dev) != 0 or _is_unshared(os.path.dirname(path), found.st_dev)


@functools.lru_cache(128)  # thousands of files of one directory are asked about, every few seconds
def _is_unshared(folder: bytes, device: int) -> bool:
    mount = mount_at(os.path.realpath(folder), device, MOUNTS)
    return mount is not None and mount.filesystem in UNSHARED


def usage(path: bytes) -> "Line":
    """Bytes and inodes; free is what a user may write, without root's reserve. Unknown values are left out."""
    answer = os.statvfs(path)
    unit = answer.f_frsize or answer.f_bsize
    found = {}  # type: Line
    if answer.f_blocks:
        # More free than total: a negative count, as the quota or reserve is exceeded.
        free = answer.f_bavail if answer.f_bavail <= answer.f_blocks else 0
        found.update(total_bytes=answer.f_blocks * unit, free_bytes=free * unit)
    # CephFS reports -1 free inodes: their number is not fixed.
    if answer.f_files and answer.f_favail <= answer.f_files:
        found.update(total_inodes=answer.f_files, free_inodes=answer.f_favail)
    return found


def sample_disk(path: str, mounts: str = MOUNTS) -> "Line":
    """One path's sample. May block forever on a dead mount."""
    sample = {"path": path}  # type: Line
    try:
        where = paths.encoded(path)
        sample.update(usage(where))
        real = os.path.realpath(where)
        mount = mount_at(real, os.stat(real).st_dev, mounts)
    except (OSError, ValueError) as error:
        return {"path": path, "state": "error", "error": paths.failure_at(where, error)}
    if mount:
        sample.update(mount=paths.shown(mount.point), filesystem=mount.filesystem, read_only=mount.read_only)
    return sample


class Disks(paths.Section):
    """The watched paths, each sampled every 10 s and at once when the spec changes."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self._known = dict.fromkeys(spec.get("disks") or (), 0.0)

    def operations(self, slow: bool) -> "list[Operation]":
        now = self._monotonic()
        return [
            ("disk:" + path, functools.partial(self._sample, path)) for path, due in self._known.items() if now >= due
        ]

    def _sample(self, path: str) -> "list[Line]":
        if path in self._known:
            self._known[path] = self._monotonic() + EVERY
        return [{"k": "disk", "d": [sample_disk(path)]}]
