"""Checkpoint directories: names, sizes and times. Runs on the node: Python 3.6, standard library only.

Only small pointer files are opened. A listing is made in slices: the GPUs and a metadata server that the training also
uses must not wait for it. An old directory that has not changed is not walked again.
"""

import functools
import itertools
import os
import stat
import time

from collectors.probe import paths
from collectors.probe.annotations import Any, Callable, Iterator, Line, Mapping, Operation
from collectors.probe.files.checkpoint_files import MAX_NAMES, SPACES, Tree, listed, pattern_of

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


class Checkpoints:
    """The watched directories: each is listed every slow tick, three times as often while it changes, and in every
    period while an action waits for a checkpoint there."""

    def __init__(
        self,
        spec: "Mapping[str, Any]",
        monotonic: "Callable[[], float]" = time.monotonic,
        wall: "Callable[[], float]" = time.time,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._directories = {}  # type: dict[str, Directory]
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        """A directory that stays is reported again: it may be new to a run."""
        self._slow = float(spec.get("slow", 30.0))
        before = self._directories
        self._directories = {
            path: before.get(path) or Directory(path, self._monotonic, self._wall)
            for path in spec.get("checkpoints") or ()
        }
        for path, directory in self._directories.items():
            directory.is_followed = path in (spec.get("followed") or ())
            directory.repeat()

    def operations(self, slow: bool) -> "list[Operation]":
        due = [(path, one) for path, one in self._directories.items() if self._monotonic() >= one.due]
        return [("ckpt:" + path, functools.partial(one.advance, self._slow)) for path, one in due]
