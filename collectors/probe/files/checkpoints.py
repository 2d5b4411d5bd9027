"""Checkpoint directories: names, sizes and times. Runs on the node: Python 3.6, standard library only.

Only small pointer files are opened. A listing is made in slices: the GPUs and a metadata server that the training also
uses must not wait for it. A checkpoint's directory is walked breadth first, one name at a time, through no link.
An old directory that has not changed is not walked again.
"""

import functools
import itertools
import os
import stat
import time

from collectors.probe import paths
from collectors.probe.stdlib import Any, Callable, Iterator, Line, Mapping, Operation

# ---- the files in one checkpoint's directory, grouped by names that differ only in numbers ---------------------------

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


# ---- checkpoint directories ------------------------------------------------------------------------------------------

SLICE = 0.5
"""Seconds of listing in a tick: the GPUs are read in the same process, and a stuck path elsewhere leaves us 1 s."""

BUDGET = 5.0
"""After this many seconds the partial listing is sent. The listing continues to its end."""

PAUSE_FACTOR = 10.0
MAX_PAUSE = 300.0
"""A listing that took 5 s is repeated after 50 s, at the latest after 300 s."""

PAUSE_FOLLOWED = 1.5
"""Less than the period of 2 s that a followed directory has: it is listed in each."""

MAX_ENTRIES = 200
MAX_BYTES = 256 * 1024
"""Of one line. 20 checkpoints take about 5 KiB."""

SETTLED = 600.0
"""Seconds after which a directory is not walked again while its folders and a file of each group are unchanged."""

STILL = 720.0
REPEAT = 10
"""If nothing was written for STILL seconds, the listing is sent only every REPEAT slow ticks. STILL is later than the
600 s after which a save counts as failed, so that shows at once."""

POINTERS = frozenset(
    (b"latest", b"latest.txt", b"latest_checkpointed_iteration.txt", b"latest_opt_step_dir", b"latest_universal")
)

NUMBERLESS = 1 << 62


def number_of(name: bytes) -> int:
    """The largest number in a name: the step, or a number that grows with it."""
    return max([int(digits[:18]) for digits in name.translate(SPACES).split()] or [NUMBERLESS])


class Entry:
    """One name in the directory, and its last state."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.fields = {}  # type: Line
        self.newest = 0.0
        self.tree = None  # type: Tree | None
        self._signature = None  # type: tuple[int, ...] | None

    def update(self, found: os.stat_result, settled_before: float, newer: "Tree | None") -> "Iterator[None]":
        """Read its current state. Yields between the files of a directory. `newer`: that of the save after it."""
        self.newest = found.st_mtime
        if stat.S_ISDIR(found.st_mode):
            self.fields = {"kind": "dir", "mtime": found.st_mtime}
            if self.tree is None:
                self.tree = Tree(self.path)
            yield from self.tree.update(found, settled_before, newer)
            self.newest = max(self.newest, self.tree.newest)
            return
        self.tree = None
        if stat.S_ISREG(found.st_mode):
            self.fields = dict(self._pointer(found), kind="file", mtime=found.st_mtime, bytes=found.st_size)
        elif stat.S_ISLNK(found.st_mode):
            self.fields = {"kind": "link", "mtime": found.st_mtime, "target": paths.shown(os.readlink(self.path))}
        else:
            self.fields = {"kind": "other", "mtime": found.st_mtime}

    def _pointer(self, found: os.stat_result) -> "Line":
        """A pointer file's text, read again only when the file has changed."""
        if os.path.basename(self.path) not in POINTERS:
            return {}
        signature = (found.st_ino, found.st_mtime_ns, found.st_size)
        if signature == self._signature:
            return {name: self.fields[name] for name in ("text", "error") if name in self.fields}
        self._signature = signature
        try:
            return {"text": paths.small_text(self.path, found)}
        except (OSError, ValueError) as error:
            return {"error": "cannot be read: " + paths.failure(error)}

    def line(self) -> "Line":
        """The wire's entry."""
        name = paths.shown(os.path.basename(self.path))
        return dict(self.fields, name=name, **(self.tree.wire_fields() if self.tree is not None else {}))


class Directory:
    """One watched directory: the progress of its listing, and its last report."""

    def __init__(self, path: str, monotonic: "Callable[[], float]", wall: "Callable[[], float]") -> None:
        self.path = path
        self.is_followed = False
        self._monotonic, self._wall = monotonic, wall
        self._names = []  # type: list[bytes]
        self._surplus = 0
        self._real = path
        self._known = {}  # type: dict[bytes, Entry]
        self._round = None  # type: Iterator[None] | None
        self._last_listing = None  # type: Line | None
        self.repeat()

    def repeat(self) -> None:
        """List it soon, and report it again."""
        self._reported = None  # type: Line | None
        self._reported_at = self.due = 0.0

    def advance(self, slow: float) -> "list[Line]":
        """Continue the listing for a slice. Returns a line when it is complete, or out of time."""
        started_at = self._monotonic()
        if self._round is None:
            self._round, self._spent = self._list(), 0.0
        before = self._spent
        error = {}  # type: Line
        try:
            for _ in self._round:
                self._spent = before + self._monotonic() - started_at
                if self._spent - before >= SLICE:
                    return self._report(slow, self._listing()) if before < BUDGET <= self._spent else []
        except (OSError, ValueError) as failed:
            where = paths.encoded(self.path.partition("\0")[0])
            is_missing = paths.is_missing(failed) and not os.path.lexists(where)
            error = {"error": paths.missing(where) if is_missing else paths.failure(failed)}
            self._names, self._known, self._surplus = [], {}, 0
        self._spent = before + self._monotonic() - started_at
        self._round = None
        listing = dict(self._listing(), **error)
        pause = PAUSE_FOLLOWED if self.is_followed else slow if listing == self._last_listing else slow / 3
        self.due = self._monotonic() + max(pause, min(PAUSE_FACTOR * self._spent, MAX_PAUSE))
        self._last_listing = listing
        return self._report(slow, listing)

    def _list(self) -> "Iterator[None]":
        """List all names, the largest numbers first: the newest checkpoint must not be missing when time runs out.

        Pointers have no number. A folder without a number comes last: `release`, or something unrelated.
        """
        folder = paths.encoded(self.path)
        names = sorted(listed(folder, MAX_NAMES), key=lambda name: (-number_of(name), name))
        self._surplus = max(0, len(names) - MAX_ENTRIES)
        self._real = paths.shown(os.path.realpath(folder))
        self._names = names[:MAX_ENTRIES]
        present = frozenset(self._names)
        self._known = {name: entry for name, entry in self._known.items() if name in present}
        settled_before = self._wall() - SETTLED
        last = []  # type: list[bytes]
        newer = {}  # type: dict[bytes, Tree]
        for name in itertools.chain(self._names, last):
            yield
            entry = self._known.get(name) or Entry(os.path.join(folder, name))
            try:
                found = os.lstat(entry.path)
                if stat.S_ISDIR(found.st_mode) and number_of(name) == NUMBERLESS and name not in last:
                    last.append(name)
                    continue
                self._known[name] = entry
                yield from entry.update(found, settled_before, newer.get(pattern_of(name)))
                if entry.tree is not None:
                    if pattern_of(name) in newer:
                        newer[pattern_of(name)].forget_sizes()
                    newer[pattern_of(name)] = entry.tree
            except (FileNotFoundError, NotADirectoryError):
                self._known.pop(name, None)  # deleted since the listing
            except OSError as error:
                self._known[name] = entry
                entry.fields = {"kind": "other", "error": "cannot be checked: " + paths.failure(error)}
        for tree in newer.values():
            tree.forget_sizes()
        self._names = [name for name in self._names if name in self._known]

    def _listing(self) -> "Line":
        """The entries, the newest first, as many as fit into one line."""
        entries = []  # type: list[Line]
        free_bytes = MAX_BYTES
        for name in self._names:
            if name not in self._known:
                continue
            line = self._known[name].line()
            free_bytes -= 200 + sum(80 + len(group[0]) + len(group[5]) for group in line.get("groups", ()))
            if free_bytes < 0:
                break
            entries.append(line)
        left_out = self._surplus + len(self._names) - len(entries)
        return {"k": "ckpt", "path": self.path, "real": self._real, "entries": entries, "left_out": left_out}

    def _report(self, slow: float, line: "Line") -> "list[Line]":
        """The line: at every listing while files change, else if it is new or the last report is old."""
        now = self._monotonic()
        newest = max([entry.newest for entry in self._known.values()] or [0.0])
        is_still = newest < self._wall() - STILL
        if line == self._reported and is_still and now - self._reported_at < REPEAT * slow:
            return []
        self._reported, self._reported_at = line, now
        return [dict(line, took_s=round(self._spent, 3))]


class Checkpoints(paths.Section):
    """The watched directories: each is listed every slow tick, three times as often while it changes, and in every
    period while an action waits for a checkpoint there."""

    def __init__(
        self,
        spec: "Mapping[str, Any]",
        monotonic: "Callable[[], float]" = time.monotonic,
        wall: "Callable[[], float]" = time.time,
    ) -> None:
        self._wall = wall
        super().__init__(spec, monotonic)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        """A directory that stays is reported again: it may be new to a run."""
        self._slow = float(spec.get("slow", 30.0))
        self._known = {
            path: self._known.get(path) or Directory(path, self._monotonic, self._wall)
            for path in spec.get("checkpoints") or ()
        }
        for path, directory in self._known.items():
            directory.is_followed = path in (spec.get("followed") or ())
            directory.repeat()

    def operations(self, slow: bool) -> "list[Operation]":
        due = [(path, one) for path, one in self._known.items() if self._monotonic() >= one.due]
        return [("ckpt:" + path, functools.partial(one.advance, self._slow)) for path, one in due]
