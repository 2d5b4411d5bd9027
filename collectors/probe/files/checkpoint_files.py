"""The files in one checkpoint's directory, grouped by names that differ only in numbers. Runs on the node: Python 3.6.

The walk is breadth first, one name at a time. It follows no links and opens no file.
"""

import itertools
import os
import stat

from collectors.probe import paths
from collectors.probe.annotations import Iterator, Line

MAX_DEPTH = 8
"""Deep enough for nanotron, which has a directory for every parameter."""

MAX_GROUPS = 60
"""Beyond this, files whose names differ in more than numbers (hashes) are counted together."""

MAX_NAMES = 50_000
"""A listing of more names is cut: no checkpoint has so many files, but a data directory beside it may."""

MAX_SENTINELS = 60

MAX_SIZES = 10_000
"""The most files of a checkpoint whose sizes are compared with those of the save before: 2 MB of memory."""

SHRUNK = 0.1
"""Of its size in the save before: a file that has less was cut short."""

HASHES = bytes.maketrans(b"0123456789", b"#" * 10)
NOT_DIGITS = bytes(byte for byte in range(256) if byte not in b"0123456789")
SPACES = bytes.maketrans(NOT_DIGITS, b" " * len(NOT_DIGITS))


def pattern_of(name: bytes) -> bytes:
    """The name with # for every run of digits."""
    name = name.translate(HASHES)
    while b"##" in name:
        name = name.replace(b"##", b"#")
    return name


def listed(folder: bytes, most: int) -> "list[bytes]":
    """At most this many of the names in a folder: a million would fill the node's memory."""
    with os.scandir(folder) as names:
        return [item.name for item in itertools.islice(names, most)]


class Group:
    """Files of one pattern."""

    __slots__ = ("bytes", "count", "example", "folder", "folders", "newest", "oldest", "shrunk")

    def __init__(self) -> None:
        self.count = self.bytes = self.folders = 0
        self.oldest, self.newest = float("inf"), 0.0
        self.example = self.folder = b""
        self.shrunk = None  # type: tuple[bytes, int, int] | None

    def add(self, folder: bytes, path: bytes, found: os.stat_result) -> None:
        if not self.count or folder != self.folder:
            self.folder, self.folders = folder, self.folders + 1  # the files of a folder come one after the other
        self.count += 1
        self.bytes += found.st_size
        self.oldest = min(self.oldest, found.st_mtime)
        self.newest = max(self.newest, found.st_mtime)
        self.example = max(self.example, path)

    def wire_array(self, pattern: bytes) -> "list[object]":
        """The wire's array."""
        times = [round(self.oldest, 3), round(self.newest, 3)]
        shrunk = [[paths.shown(self.shrunk[0]), *self.shrunk[1:]]] if self.shrunk else []
        return [paths.shown(pattern), self.count, self.bytes, *times, paths.shown(self.example), self.folders, *shrunk]


class Walk:
    """The result of one walk so far."""

    def __init__(self) -> None:
        self.groups = {}  # type: dict[bytes, Group]
        self.sentinels = {}  # type: dict[bytes, tuple[int, int]]
        self.sizes = {}  # type: dict[bytes, int]
        self.names = 0
        self.newest = 0.0
        self.error = None  # type: str | None

    def add(self, folder: bytes, path: bytes, found: os.stat_result, end: bytes = b"") -> None:
        pattern = pattern_of(path) + end
        if pattern not in self.groups and len(self.groups) >= MAX_GROUPS:
            pattern = pattern_of(folder) + b"*" + end if len(self.groups) < 2 * MAX_GROUPS else b"*"
        if pattern not in self.groups:
            self.groups[pattern] = Group()
            self.add_sentinel(path, found)
        self.groups[pattern].add(folder, path, found)
        if len(self.sizes) < MAX_SIZES:
            self.sizes[path] = found.st_size
        self.newest = max(self.newest, found.st_mtime)

    def add_sentinel(self, path: bytes, found: os.stat_result) -> None:
        """Store a folder, or one file of a group: these show a change without a walk."""
        if len(self.sentinels) < MAX_SENTINELS:
            self.sentinels[path] = (found.st_mtime_ns, found.st_size)


class Tree:
    """One checkpoint's directory: its last complete walk, and the current one."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.is_walked = self.is_needed = False  # by the last listing; for the save after it, which was walked, too
        self._last = None  # type: Walk | None
        self._current = None  # type: Walk | None

    @property
    def newest(self) -> float:
        walk = self._last or self._current
        return walk.newest if walk else 0.0

    def update(self, found: os.stat_result, settled_before: float, newer: "Tree | None" = None) -> "Iterator[None]":
        """Walk it, unless it is old and its sentinels are unchanged: its folders and a file of each group. Compare the
        save after it, `newer`, with it."""
        self.is_walked, last = False, self._last
        self.is_needed = newer is not None and newer.is_walked
        is_unchanged = last is not None and last.error is None and last.newest < settled_before
        if last is not None and is_unchanged:
            for path, before in last.sentinels.items():
                yield
                try:
                    now = os.lstat(os.path.join(self.path, path)) if path else found
                except OSError:
                    now = None
                if now is None or (now.st_mtime_ns, now.st_size) != before:
                    is_unchanged = False
                    break
        if not is_unchanged or (self.is_needed and last is not None and not last.sizes):
            self._current = Walk()
            yield from self._walk(self._current, found)
            if last is not None and is_unchanged:
                last.sizes = self._current.sizes
            else:
                self._last, self.is_walked = self._current, True
            self._current = None
        if newer is not None and newer.is_walked:
            newer.compare(self)

    def forget_sizes(self) -> None:
        """Free the memory, unless the next walk of the save after it is compared with them."""
        if self._last is not None and not self.is_needed:
            self._last.sizes = {}

    def compare(self, before: "Tree") -> None:
        """Find the files that have less than a tenth of their size in the save before. Of another number of files, as
        in a run of another size, nothing is known."""
        now, then = self._last, before._last
        if now is None or then is None:
            return
        renamed = {path.replace(before.step, b"#"): size for path, size in then.sizes.items() if before.step in path}
        for path, size in now.sizes.items():
            usual = then.sizes.get(path) or renamed.get(path.replace(self.step, b"#"), 0)
            group, other = now.groups.get(pattern_of(path)), then.groups.get(pattern_of(path))
            if size >= SHRUNK * usual or group is None or other is None or group.count != other.count:
                continue
            if group.shrunk is None or size * group.shrunk[2] < group.shrunk[1] * usual:
                group.shrunk = (path, size, usual)

    @property
    def step(self) -> bytes:
        """The longest number in its name, which some of its files repeat."""
        digits = os.path.basename(self.path).translate(SPACES).split()
        return max(digits, key=len) if digits else b"\0"

    def _walk(self, walk: Walk, top: os.stat_result) -> "Iterator[None]":
        walk.newest = top.st_mtime
        pending = [(b"", 1, top)]
        while pending:
            below, depth, found = pending.pop(0)
            walk.add_sentinel(below, found)
            try:
                names = listed(os.path.join(self.path, below) if below else self.path, MAX_NAMES - walk.names)
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
                    continue  # deleted since the listing: trainers rename and delete all the time
                if not stat.S_ISDIR(found.st_mode):
                    walk.add(below, path, found)
                elif depth < MAX_DEPTH:
                    walk.newest = max(walk.newest, found.st_mtime)
                    pending.append((path + b"/", depth + 1, found))
                else:
                    walk.add(below, path, found, b"/")

    def wire_fields(self) -> "Line":
        """The wire's fields: of the last complete walk, else of the current one so far."""
        walk = self._last or self._current
        if walk is None:
            return {"cut": True}
        fields = {
            "groups": [group.wire_array(pattern) for pattern, group in sorted(walk.groups.items())],
            "bytes": sum(group.bytes for group in walk.groups.values()),
        }  # type: Line
        if walk.error:
            fields["error"] = walk.error
        if self._last is None or walk.names >= MAX_NAMES:
            fields["cut"] = True
        return fields
