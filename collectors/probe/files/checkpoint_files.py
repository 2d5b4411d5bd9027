"""What is in one checkpoint's directory: files whose names differ in numbers alone are one group. Python 3.6.

Walked breadth first, a name at a time; links are not followed, no file is opened.
"""

import itertools
import os
import stat

from collectors.probe import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEPTH = 8
"""Deep enough for nanotron, which has a directory for every parameter."""

MOST_GROUPS = 60
"""Names that differ in more than numbers (hashes) are counted together from here on."""

MOST_NAMES = 50_000
"""More are counted as cut: no checkpoint has so many files, but a directory of data that lies beside may."""

MOST_MARKS = 60
HASHES = bytes.maketrans(b"0123456789", b"#" * 10)


def pattern_of(name: bytes) -> bytes:
    """The name with every run of digits as one #."""
    name = name.translate(HASHES)
    while b"##" in name:
        name = name.replace(b"##", b"#")
    return name


def listed(folder: bytes, most: int) -> "list[bytes]":
    """At most so many of the names in a folder: a million would fill the node's memory."""
    with os.scandir(folder) as names:
        return [item.name for item in itertools.islice(names, most)]


class Group:
    """Files of one pattern."""

    __slots__ = ("bytes", "count", "example", "folder", "folders", "newest", "oldest")

    def __init__(self) -> None:
        self.count = self.bytes = self.folders = 0
        self.oldest, self.newest = float("inf"), 0.0
        self.example = self.folder = b""

    def add(self, folder: bytes, path: bytes, found: os.stat_result) -> None:
        if not self.count or folder != self.folder:
            self.folder, self.folders = folder, self.folders + 1  # its folders come one after the other
        self.count += 1
        self.bytes += found.st_size
        self.oldest = min(self.oldest, found.st_mtime)
        self.newest = max(self.newest, found.st_mtime)
        self.example = max(self.example, path)

    def told(self, pattern: bytes) -> "list[str | int | float]":
        """The wire's array."""
        times = [round(self.oldest, 3), round(self.newest, 3)]
        return [paths.shown(pattern), self.count, self.bytes, *times, paths.shown(self.example), self.folders]


class Walk:
    """What one walk has found so far."""

    def __init__(self) -> None:
        self.groups = {}  # type: dict[bytes, Group]
        self.marks = {}  # type: dict[bytes, tuple[int, int]]
        self.names = 0
        self.newest = 0.0
        self.error = None  # type: str | None

    def add(self, folder: bytes, path: bytes, found: os.stat_result, end: bytes = b"") -> None:
        pattern = pattern_of(path) + end
        if pattern not in self.groups and len(self.groups) >= MOST_GROUPS:
            pattern = pattern_of(folder) + b"*" + end if len(self.groups) < 2 * MOST_GROUPS else b"*"
        group = self.groups.get(pattern)
        if group is None:
            group = self.groups[pattern] = Group()
            self.mark(path, found)
        group.add(folder, path, found)
        self.newest = max(self.newest, found.st_mtime)

    def mark(self, path: bytes, found: os.stat_result) -> None:
        """Remember a folder, or one file of a group: by these a change is seen without a walk."""
        if len(self.marks) < MOST_MARKS:
            self.marks[path] = (found.st_mtime_ns, found.st_size)


class Tree:
    """One checkpoint's directory: what the last whole walk found, and where the walk under way is."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self._last = None  # type: Walk | None
        self._now = None  # type: Walk | None

    @property
    def newest(self) -> float:
        walk = self._last or self._now
        return walk.newest if walk else 0.0

    def look(self, found: os.stat_result, settled_before: float) -> "Iterator[None]":
        """Walk it, unless it has been still for long and its folders and a file of each group are as they were."""
        last = self._last
        if last is not None and last.error is None and last.newest < settled_before:
            for path, seen in last.marks.items():
                yield
                try:
                    now = os.lstat(os.path.join(self.path, path)) if path else found
                except OSError:
                    break
                if (now.st_mtime_ns, now.st_size) != seen:
                    break
            else:
                return
        self._now = Walk()
        yield from self._walk(self._now, found)
        self._last, self._now = self._now, None

    def _walk(self, walk: Walk, top: os.stat_result) -> "Iterator[None]":
        walk.newest = top.st_mtime
        pending = [(b"", 1, top)]
        while pending:
            below, depth, found = pending.pop(0)
            walk.mark(below, found)
            try:
                names = listed(os.path.join(self.path, below) if below else self.path, MOST_NAMES - walk.names)
            except OSError as error:
                if not paths.is_missing(error):
                    walk.error = "cannot be listed: " + paths.failure(error)
                elif not below:
                    raise
                continue
            walk.names += len(names)
            for name in names:
                yield
                path = below + name
                try:
                    found = os.lstat(os.path.join(self.path, path))
                except OSError:
                    continue  # deleted since the listing, as trainers rename and delete all the time
                if not stat.S_ISDIR(found.st_mode):
                    walk.add(below, path, found)
                elif depth < DEPTH:
                    walk.newest = max(walk.newest, found.st_mtime)
                    pending.append((path + b"/", depth + 1, found))
                else:
                    walk.add(below, path, found, b"/")

    def told(self) -> "dict[str, Any]":
        """The wire's fields: of the last whole walk, else of what there is so far."""
        walk = self._last or self._now
        if walk is None:
            return {"cut": True}
        groups = [one.told(pattern) for pattern, one in sorted(walk.groups.items())]
        said = {"groups": groups, "bytes": sum(one.bytes for one in walk.groups.values())}  # type: dict[str, Any]
        if walk.error:
            said["error"] = walk.error
        if self._last is None or walk.names >= MOST_NAMES:
            said["cut"] = True
        return said
