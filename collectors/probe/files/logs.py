"""Log tails: the newest match of a pattern is followed. Runs on the node: Python 3.6, standard library only.

One operation a log, for dead mounts. Nothing is ever waited for; a worker that is killed in here leaves a mark with its
parent (`Logs.state`), from which the next one goes on.
"""

import functools
import glob
import os
import re
import stat
import time

from collectors.probe import paths
from collectors.probe.files.lines import Lines
from collectors.probe.files.tail import Mark, Tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from re import Pattern
    from typing import Any

GLOB_EVERY = 10.0
GLOB_SHARE = 50.0
"""A glob that takes a second (a folder of 100,000 files on Lustre) is repeated after 50 s, at the latest after 60 s."""

STILL = 60.0
"""A match that was there before takes over only from a log that has not grown for so long: two logs that are written
at the same time would else take turns. A file that was not there before takes over at once."""

MATCHES = 2000
MARKS = 16


class Matches:
    """The files that match a pattern: which is the newest, and which were not there before."""

    def __init__(self, pattern: bytes, monotonic: "Callable[[], float]") -> None:
        self.pattern = pattern
        self._monotonic = monotonic
        self._due = 0.0
        self._known = None  # type: frozenset[bytes] | None

    def due(self) -> bool:
        return self._monotonic() >= self._due

    def newest(self) -> "tuple[bytes | None, bool]":
        """The newest regular file by time of change, then by name; and whether it came since this follower began."""
        begun = self._monotonic()
        found = []
        for path in glob.glob(self.pattern) or [self.pattern]:
            try:
                status = os.stat(path)
            except OSError:
                continue  # gone since the glob, or a link to nothing; with no match left, that is what is said
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, path))
        found = sorted(found)[-MATCHES:]
        ended = self._monotonic()
        self._due = ended + min(60.0, max(GLOB_EVERY, GLOB_SHARE * (ended - begun)))
        if not found:
            return None, False
        names, newest = frozenset(path for _, path in found), found[-1][1]
        known = names if self._known is None else self._known
        self._known = (known & names) | {newest}
        return newest, newest not in known


def blocked(pattern: bytes) -> str:
    """Why a pattern cannot match anything, if its folder is the cause: a glob itself keeps silent about that."""
    folder = os.path.dirname(pattern) or b"."
    if glob.has_magic(folder):
        return ""
    try:
        os.scandir(folder).close()
    except OSError as error:
        gone = paths.is_missing(error)
        return ": %s %s" % (paths.shown(folder), paths.missing(folder) if gone else paths.failure(error))
    return ""


class Follower:
    """One log of the spec: finds its file, reads it, notices when it becomes another."""

    def __init__(self, name: str, pattern: str, monotonic: "Callable[[], float]") -> None:
        self.pattern = pattern
        self._name = name
        self._monotonic = monotonic
        where = paths.encoded(pattern)
        self._path = where
        self._matches = Matches(where, monotonic) if glob.has_magic(where) else None
        self._lines = Lines()
        self._file = None  # type: Tail | None
        self._last_path = None  # type: bytes | None
        self._marks = {}  # type: dict[tuple[int, int], Mark]
        self._grew_at = monotonic()
        self._said = None  # type: dict[str, Any] | None

    def keep(self, expression: "Pattern[str] | None") -> None:
        self._lines.keep = expression

    def close(self) -> None:
        """Let go of the file, with a mark to go on from if it comes back."""
        file, self._file = self._file, None
        if file:
            self._marks.pop(file.identity, None)
            self._marks[file.identity] = file.mark
            while len(self._marks) > MARKS:
                del self._marks[next(iter(self._marks))]
            file.close()

    def look(self, slow: bool, trouble: "str | None" = None) -> "list[dict[str, Any]]":
        """The chunks that there are to send."""
        chunks = []  # type: list[dict[str, Any]]
        restarted = None
        try:
            restarted = self._choose(chunks)
            if self._file:
                restarted = self._read(self._file) or restarted
        except (OSError, ValueError) as error:
            self.close()
            trouble = self._sentence(error)
        chunks.append(self._chunk(restarted, trouble, slow))
        return [chunk for chunk in chunks if chunk]

    def _sentence(self, error: "OSError | ValueError") -> str:
        if not paths.is_missing(error):
            return "%s: %s" % (paths.shown(self._path), paths.failure(error))
        if self._matches:
            return "no file matches %s%s" % (self.pattern, blocked(self._matches.pattern))
        return "%s %s" % (self.pattern, paths.missing(self._path))

    def _read(self, file: Tail) -> "str | None":
        offset = file.mark.offset
        restarted = file.read()
        if restarted or file.mark.offset != offset:
            self._grew_at = self._monotonic()
        return restarted

    def _choose(self, chunks: "list[dict[str, Any]]") -> "str | None":
        """Make sure that the right file is open. Says "replaced" or "newer" when it is another than before."""
        fresh = False
        gone = not os.path.exists(self._path)
        if self._matches and (self._matches.due() or (gone and self._file)):
            newest, fresh = self._matches.newest()
            still = self._monotonic() - self._grew_at >= STILL
            if newest and (fresh or still or gone or not self._file):
                self._path = newest
        file = self._file
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            # Renamed or deleted: what its writer still adds is read; a deleted file is not held for longer than that.
            if file is None or not self._still_written(file):
                raise
            return None
        if file and file.identity == (found.st_dev, found.st_ino):
            file.path = self._path
            return None
        return self._open(fresh, chunks)

    def _still_written(self, file: Tail) -> bool:
        offset = file.mark.offset
        self._read(file)
        return file.mark.offset != offset

    def _open(self, fresh: bool, chunks: "list[dict[str, Any]]") -> "str | None":
        """Open the chosen file, after the last words of the one before."""
        replaced = self._path == self._last_path
        if self._file:
            self._file.read()
            if replaced:
                self._lines.flush()
            chunks.append(self._chunk(None, None, slow=False))
            self.close()
        file = Tail(self._path, self._lines)
        mark = self._marks.get(file.identity)
        resumed = file.begin(whole=self._last_path is not None and (replaced or fresh), mark=mark)
        before, self._last_path, self._file = self._last_path, self._path, file
        self._grew_at = self._monotonic()
        if before is None or (replaced and resumed):
            return None
        return "replaced" if replaced else "newer"

    def _chunk(self, restarted: "str | None", trouble: "str | None", slow: bool) -> "dict[str, Any]":
        """A chunk, or nothing when there is nothing new and it is not the slow tick's turn."""
        state = {"k": "log", "id": self._name, "error": trouble}  # type: dict[str, Any]
        if self._file:
            found = self._file.found
            state.update(path=paths.shown(self._file.path), size=found.st_size, mtime=found.st_mtime)
            state["partial"] = self._lines.partial()
        lines = self._lines.take()
        if not (lines or restarted or slow or state != self._said):
            return {}
        self._said = state
        chunk = dict(state, restarted=restarted, **lines)
        return {name: value for name, value in chunk.items() if value is not None}

    def state(self) -> "dict[str, Any] | None":
        file = self._file
        if file is None or self._last_path is None:
            return None
        mark, anchor = file.mark, file.mark.anchor.decode("latin-1")
        path = self._last_path.decode("utf-8", "surrogateescape")
        return {"path": path, "file": file.identity, "offset": mark.offset, "line": mark.line, "anchor": anchor}

    def restore(self, state: "Mapping[str, Any]") -> None:
        self._last_path = state["path"].encode("utf-8", "surrogateescape")
        device, inode = state["file"]
        self._marks[device, inode] = Mark(state["offset"], state["line"], state["anchor"].encode("latin-1"))


class Logs:
    """The followed logs of the spec."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]" = time.monotonic) -> None:
        self._monotonic = monotonic
        self._followers = {}  # type: dict[str, Follower]
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        before, self._followers = self._followers, {}
        for log in spec.get("logs") or ():
            name, pattern = log["id"], log["pattern"]
            stays = before.get(name)
            if stays and stays.pattern == pattern:
                self._followers[name] = before.pop(name)
            else:
                self._followers[name] = Follower(name, pattern, self._monotonic)
        for follower in before.values():
            follower.close()
        self._keep(spec.get("keep") or "")

    def _keep(self, expression: str) -> None:
        self._trouble = None  # type: str | None
        compiled = None
        try:
            compiled = re.compile(expression) if expression else None
        except re.error as error:
            self._trouble = "no lines are kept in a burst: the expression for step lines is broken: %s" % error
        for follower in self._followers.values():
            follower.keep(compiled)

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[dict[str, Any]]]]]":
        look = Follower.look
        return [
            ("log:" + name, functools.partial(look, one, slow, self._trouble)) for name, one in self._followers.items()
        ]

    def state(self) -> "dict[str, Any]":
        """Where each log has been read to, for JSON."""
        states = {name: follower.state() for name, follower in self._followers.items()}
        return {name: state for name, state in states.items() if state}

    def restore(self, state: "Mapping[str, Any]") -> None:
        """Go on from where another worker was, without repeating lines."""
        for name, follower in self._followers.items():
            if name in state:
                follower.restore(state[name])
