"""Checkpoint directories: names, sizes and times. Runs on the node: Python 3.6, standard library only.

Nothing is opened but small pointer files. A look is done in slices, so that it holds up neither the GPUs nor a metadata
server that the training uses too; what has long been still is not walked again.
"""

import itertools
import os
import stat
import time

from collectors.probe import paths
from collectors.probe.files.checkpoint_files import MOST_NAMES, Tree, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Line = dict[str, Any]

SLICE = 0.5
"""Seconds of looking a tick: the GPUs are read in the same process, and a stuck path elsewhere leaves us 1 s."""

BUDGET = 5.0
"""After so many seconds of looking, what is known is told as it is; the look goes on to its end."""

SHARE = 10.0
LONGEST_PAUSE = 300.0
"""A look that took 5 s is repeated after 50 s, at the latest after 300 s."""

MOST_ENTRIES = 200
MOST_BYTES = 256 * 1024
"""Of one line. 20 checkpoints are about 5 KiB."""

SETTLED = 600.0
"""Seconds after which a directory is not walked again, as long as its folders and a file of each kind are unchanged."""

STILL = 720.0
REPEAT = 10
"""Where nothing was written for so many seconds, the listing is told every so many slow ticks. Later than a save counts
as failed (600 s): that shows at once."""

POINTERS = frozenset(
    (b"latest", b"latest.txt", b"latest_checkpointed_iteration.txt", b"latest_opt_step_dir", b"latest_universal")
)

DIGITS = b"0123456789"
NOT_DIGITS = bytes(byte for byte in range(256) if byte not in DIGITS)
SPACES = bytes.maketrans(NOT_DIGITS, b" " * len(NOT_DIGITS))


NUMBERLESS = 1 << 62


def number_of(name: bytes) -> int:
    """The largest number in a name: the step, or what grows with it."""
    return max([int(digits[:18]) for digits in name.translate(SPACES).split()] or [NUMBERLESS])


class Entry:
    """One name in the directory, and what was last seen of it."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.told = {}  # type: Line
        self.newest = 0.0
        self.tree = None  # type: Tree | None
        self._signature = None  # type: tuple[int, ...] | None

    def look(self, found: os.stat_result, settled_before: float) -> "Iterator[None]":
        """See how it is now. What takes long yields."""
        self.newest = found.st_mtime
        if stat.S_ISDIR(found.st_mode):
            self.told = {"kind": "dir", "mtime": found.st_mtime}
            if self.tree is None:
                self.tree = Tree(self.path)
            yield from self.tree.look(found, settled_before)
            self.newest = max(self.newest, self.tree.newest)
            return
        self.tree = None
        if stat.S_ISREG(found.st_mode):
            self.told = dict(self._pointer(found), kind="file", mtime=found.st_mtime, bytes=found.st_size)
        elif stat.S_ISLNK(found.st_mode):
            target = paths.shown(os.readlink(self.path))
            self.told = {"kind": "link", "mtime": found.st_mtime, "target": target}
        else:
            self.told = {"kind": "other", "mtime": found.st_mtime}

    def _pointer(self, found: os.stat_result) -> "Line":
        """What a pointer file says, read again only when the file changed."""
        if os.path.basename(self.path) not in POINTERS:
            return {}
        signature = (found.st_ino, found.st_mtime_ns, found.st_size)
        if signature == self._signature:
            return {name: self.told[name] for name in ("text", "error") if name in self.told}
        self._signature = signature
        try:
            return {"text": paths.small_text(self.path)}
        except OSError as error:
            return {"error": "cannot be read: " + paths.failure(error)}

    def line(self) -> "Line":
        """The wire's entry."""
        said = dict(self.told, name=paths.shown(os.path.basename(self.path)))
        if self.tree is not None:
            said.update(self.tree.told())
        return said


class Directory:
    """One watched directory: where the look at it is, and what was last said of it."""

    def __init__(self, path: str, monotonic: "Callable[[], float]", wall: "Callable[[], float]") -> None:
        self.path = path
        self.due = 0.0
        self._monotonic, self._wall = monotonic, wall
        self._names = []  # type: list[bytes]
        self._surplus = 0
        self._known = {}  # type: dict[bytes, Entry]
        self._round = None  # type: Iterator[None] | None
        self._seen = None  # type: Line | None
        self.repeat()

    def repeat(self) -> None:
        """Tell it again at the next look, and look soon."""
        self._said = None  # type: Line | None
        self._said_at = 0.0
        self.due = 0.0

    def look(self, slow: float) -> "list[Line]":
        """A slice of a look; a line when it is at its end, or out of time."""
        begun = self._monotonic()
        if self._round is None:
            self._round, self._spent = self._look(), 0.0
        before = self._spent
        try:
            for _ in self._round:
                self._spent = before + self._monotonic() - begun
                if self._spent - before >= SLICE:
                    return self._tell(slow, {}) if before < BUDGET <= self._spent else []
            error = {}  # type: Line
        except (OSError, ValueError) as failed:
            where = paths.encoded(self.path.partition("\0")[0])
            is_missing = paths.is_missing(failed) and not os.path.lexists(where)
            error = {"error": paths.missing(where) if is_missing else paths.failure(failed)}
            self._names, self._known, self._surplus = [], {}, 0
        self._spent = before + self._monotonic() - begun
        self._round = None
        seen = dict(self._listing(), **error)
        pause = slow if seen == self._seen else slow / 3
        self.due = self._monotonic() + max(pause, min(SHARE * self._spent, LONGEST_PAUSE))
        self._seen = seen
        return self._tell(slow, error)

    def _look(self) -> "Iterator[None]":
        """All names, those with the largest numbers first: the newest checkpoint is never what time lacked for.

        Pointers have no number. A folder without one comes last: `release`, but also whatever else people keep here.
        """
        folder = paths.encoded(self.path)
        names = sorted(listed(folder, MOST_NAMES), key=lambda name: (-number_of(name), name))
        self._surplus = max(0, len(names) - MOST_ENTRIES)
        self._names = names[:MOST_ENTRIES]
        present = frozenset(self._names)
        self._known = {name: entry for name, entry in self._known.items() if name in present}
        settled_before = self._wall() - SETTLED
        last = []  # type: list[bytes]
        for name in itertools.chain(self._names, last):
            yield
            entry = self._known.get(name) or Entry(os.path.join(folder, name))
            try:
                found = os.lstat(entry.path)
                if stat.S_ISDIR(found.st_mode) and number_of(name) == NUMBERLESS and name not in last:
                    last.append(name)
                    continue
                self._known[name] = entry
                yield from entry.look(found, settled_before)
            except (FileNotFoundError, NotADirectoryError):
                self._known.pop(name, None)  # deleted while we looked
            except OSError as error:
                self._known[name] = entry
                entry.told = {"kind": "other", "error": "cannot be looked at: " + paths.failure(error)}
        self._names = [name for name in self._names if name in self._known]

    def _listing(self) -> "Line":
        """What is known, the newest first, as much as one line may hold."""
        entries = []  # type: list[Line]
        room = MOST_BYTES
        for name in self._names:
            entry = self._known.get(name)
            if entry is None:
                continue
            line = entry.line()
            room -= 200 + sum(80 + len(group[0]) + len(group[5]) for group in line.get("groups", ()))
            if room < 0:
                break
            entries.append(line)
        left_out = self._surplus + len(self._names) - len(entries)
        return {"k": "ckpt", "path": self.path, "entries": entries, "left_out": left_out}

    def _tell(self, slow: float, error: "Line") -> "list[Line]":
        """The line: when it is news; what was written lately at every look, the rest now and then."""
        now = self._monotonic()
        line = dict(self._listing(), **error)
        newest = max([entry.newest for entry in self._known.values()] or [0.0])
        is_still = newest < self._wall() - STILL
        if line == self._said and is_still and now - self._said_at < REPEAT * slow:
            return []
        self._said, self._said_at = line, now
        return [dict(line, took_s=round(self._spent, 3))]


class Checkpoints:
    """The watched directories: each at every slow tick, three times as often while something in it changes."""

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
        """A directory that stays is told again: it may be new to the run that asks."""
        self._slow = float(spec.get("slow", 30.0))
        before = self._directories
        self._directories = {
            path: before.get(path) or Directory(path, self._monotonic, self._wall)
            for path in spec.get("checkpoints") or ()
        }
        for directory in self._directories.values():
            directory.repeat()

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[Line]]]]":
        now = self._monotonic()
        return [("ckpt:" + path, self._operation(one)) for path, one in self._directories.items() if now >= one.due]

    def _operation(self, directory: Directory) -> "Callable[[], list[Line]]":
        return lambda: directory.look(self._slow)
