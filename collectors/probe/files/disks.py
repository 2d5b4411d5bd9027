"""Room on the watched paths: statvfs and /proc/self/mountinfo. Runs on the node: Python 3.6, standard library only.

One operation a path: statvfs on a dead mount never returns, and must cost that path alone.
"""

import os
import time

from collectors.probe import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

EVERY = 10.0
"""Seconds between two looks at one path: a statvfs is a round trip to a metadata server that the training uses too."""

MOUNTS = "/proc/self/mountinfo"


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
    """The mount that shows this real path: the longest mount point above it, of equals the last (it lies on top).

    A mount of the path's own device goes before: a longer one may lie hidden under a later mount of its parent.
    """
    best = None
    rank = (False, -1)
    for line in lines:
        mount = Mount(line)
        if mount.holds(path):
            here = (mount.device == device.encode(), len(mount.point))
            if here >= rank:
                best, rank = mount, here
    return best


def room(path: bytes) -> "dict[str, Any]":
    """Bytes and inodes: what a user may still write, not what root may. What a filesystem does not know is None."""
    answer = os.statvfs(path)
    unit = answer.f_frsize or answer.f_bsize
    found = {}  # type: dict[str, Any]
    if answer.f_blocks:
        # More free than there is: a negative count of a quota or reserve that is overdrawn.
        free = answer.f_bavail if answer.f_bavail <= answer.f_blocks else 0
        found.update(total_bytes=answer.f_blocks * unit, free_bytes=free * unit)
    # CephFS says -1 free inodes: no fixed number there.
    if answer.f_files and answer.f_favail <= answer.f_files:
        found.update(total_inodes=answer.f_files, free_inodes=answer.f_favail)
    return found


def look(path: str, mounts: str = MOUNTS) -> "dict[str, Any]":
    """One path's sample. May block for ever on a dead mount."""
    sample = {"path": path}  # type: dict[str, Any]
    try:
        where = paths.encoded(path)
        sample.update(room(where))
        real = os.path.realpath(where)
        device = os.stat(real).st_dev
        with open(mounts, "rb") as table:
            mount = mount_of(real, "%d:%d" % (os.major(device), os.minor(device)), table.read().splitlines())
    except (OSError, ValueError) as error:
        gone = paths.is_missing(error)
        return {"path": path, "state": "error", "error": paths.missing(where) if gone else paths.failure(error)}
    if mount:
        sample.update(mount=paths.shown(mount.point), filesystem=mount.filesystem, read_only=mount.read_only)
    return sample


class Disks:
    """The watched paths, each looked at every 10 s and at once when the spec changes."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]" = time.monotonic) -> None:
        self._monotonic = monotonic
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self._due = dict.fromkeys(spec.get("disks") or (), 0.0)  # type: dict[str, float]

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[dict[str, Any]]]]]":
        now = self._monotonic()
        return [("disk:" + path, self._operation(path)) for path, due in self._due.items() if now >= due]

    def _operation(self, path: str) -> "Callable[[], list[dict[str, Any]]]":
        return lambda: self._look(path)

    def _look(self, path: str) -> "list[dict[str, Any]]":
        if path in self._due:
            self._due[path] = self._monotonic() + EVERY
        return [{"k": "disk", "d": [look(path)]}]
