"""Log tails: follows the newest match of a pattern. Runs on the node: Python 3.6, standard library only.

Each log is an operation: a mount may hang. Nothing blocks. A killed worker leaves its bookmarks with its parent
(`Logs.state`), and the next worker continues there.
"""

import functools
import glob
import os
import re
import stat

from collectors.probe import paths
from collectors.probe.files.disks import is_on_this_host
from collectors.probe.files.lines import Lines
from collectors.probe.stdlib import Any, Callable, Line, Mapping, Operation

# ---- one open log file -----------------------------------------------------------------------------------------------

TAIL = 64 * 1024
LOOK_BACK = 4 * 1024 * 1024
"""Bytes before the end in which the last mentions are searched, once."""

HEAD = 16 * 1024
"""Bytes at the start in which the first date is searched, once."""

BLOCK = 256 * 1024
READ_LIMIT = 4 * 1024 * 1024
"""Bytes read at a time. If a log grows faster, older bytes are skipped: the newest part is always read."""

COUNT_LIMIT = 16 * 1024 * 1024
"""Lines are counted in the last so many of the skipped bytes."""

ANCHOR = 64

NUL_READS = 3
"""A file server may show new bytes as NUL before it has them. They are read again this many times."""


class Bookmark:
    """How far a file was read: enough to continue, and to detect another text."""

    def __init__(self, offset: int = 0, line: int = 0, anchor: bytes = b"") -> None:
        self.offset = offset
        self.line = line  # where the unfinished line began
        self.anchor = anchor  # the last bytes before offset


class Tail:
    """An open log. Its lines are fed to `lines`."""

    def __init__(self, path: bytes, lines: Lines) -> None:
        self.path = path
        self.mark = Bookmark()
        self._lines = lines
        self._handle = paths.open_linked(path)
        self._nul_reads = 0
        self.found = os.fstat(self._handle)

    @property
    def identity(self) -> "tuple[int, int]":
        return (self.found.st_dev, self.found.st_ino)

    def close(self) -> None:
        os.close(self._handle)

    def begin(self, whole: bool, mark: "Bookmark | None" = None) -> bool:
        """Begin at a bookmark that still fits (returns true), else at the start or with the last 64 KiB."""
        if mark and mark.offset <= self.found.st_size and self._fits(mark):
            self.mark = Bookmark(mark.line, mark.line)
            self._lines.begin()
            return True
        start = 0 if whole else max(0, self.found.st_size - TAIL)
        self.mark = Bookmark(start, start)
        self._lines.begin(inside=start > 0)
        if not whole:
            self._lines.is_history = True
            self._lines.look_at_head(os.pread(self._handle, HEAD, 0))
            if self._lines.mentions:
                last = max(0, self.found.st_size - LOOK_BACK)
                self._lines.look_back(os.pread(self._handle, TAIL, 0), os.pread(self._handle, LOOK_BACK, last))
        return False

    def _fits(self, mark: Bookmark) -> bool:
        return os.pread(self._handle, len(mark.anchor), mark.offset - len(mark.anchor)) == mark.anchor

    def read(self) -> "str | None":
        """Read the new bytes, up to the current size. Returns `truncated` if the text began again."""
        before, self.found = self.found, os.fstat(self._handle)
        changed = (before.st_mtime_ns, before.st_size) != (self.found.st_mtime_ns, self.found.st_size)
        is_truncated = self.found.st_size < self.mark.offset or (changed and not self._fits(self.mark))
        if is_truncated:
            self.begin(whole=True)
        if self.found.st_size - self.mark.offset > READ_LIMIT:
            self._skip_to(self.found.st_size - READ_LIMIT)
        size, mark = self.found.st_size, self.mark
        while mark.offset < size:
            data = os.pread(self._handle, min(BLOCK, size - mark.offset), mark.offset)
            if not data:
                break
            if data.endswith(b"\0") and mark.offset + len(data) == size and self._nul_reads < NUL_READS:
                self._nul_reads += 1
                data = data.rstrip(b"\0")
                size = mark.offset + len(data)
            else:
                self._nul_reads = 0
            newline = data.rfind(b"\n")
            if newline >= 0:
                mark.line = mark.offset + newline + 1
            mark.offset += len(data)
            mark.anchor = (mark.anchor + data[-ANCHOR:])[-ANCHOR:]
            self._lines.feed(data)
        return "truncated" if is_truncated else None

    def _skip_to(self, target: int) -> None:
        position, count = max(self.mark.offset, target - COUNT_LIMIT), 0
        while position < target:
            data = os.pread(self._handle, min(BLOCK, target - position), position)
            if not data:
                break
            position += len(data)
            count += data.count(b"\n")
        self._lines.skip(count)
        self.mark = Bookmark(target, target)


# ---- log tails -------------------------------------------------------------------------------------------------------

GLOB_EVERY = 10.0
GLOB_SHARE = 50.0
"""A glob that takes a second (a folder of 100,000 files on Lustre) is repeated after 50 s, at the latest after 60 s."""

STILL = 60.0
"""Seconds without growth after which an older match replaces the current log: otherwise two logs that are written at
the same time would alternate. A new file replaces it at once."""

MATCHES = 2000
OTHERS = 20
"""Further matches that are reported beside the newest one: the logs of attempts that nobody watched."""
BOOKMARKS = 16


class Matches:
    """The files that match a pattern: the newest one, and whether it is new."""

    def __init__(
        self, pattern: bytes, monotonic: "Callable[[], float]", stat_of: "Callable[[bytes], os.stat_result]"
    ) -> None:
        self.pattern = pattern
        self._stat = stat_of
        self._monotonic = monotonic
        self.due_at = 0.0
        self.others = []  # type: list[list[Any]]
        """The newest of the other files at the last look, with the times of their last lines."""
        self._known = None  # type: frozenset[bytes] | None

    def newest(self) -> "tuple[bytes | None, bool]":
        """The newest regular file by modification time, then by name, and whether it is new to this follower."""
        started_at = self._monotonic()
        found = []
        for path in glob.glob(self.pattern) or [self.pattern]:
            try:
                status = self._stat(path)
            except OSError:
                continue  # deleted since the glob, a dangling link, or not our own
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, path))
        found = sorted(found)[-MATCHES:]
        ended = self._monotonic()
        self.due_at = ended + min(60.0, max(GLOB_EVERY, GLOB_SHARE * (ended - started_at)))
        self.others = [[paths.shown(path), mtime / 1e9] for mtime, path in found[-2 : -2 - OTHERS : -1]]
        if not found:
            return None, False
        names, newest = frozenset(path for _, path in found), found[-1][1]
        known = names if self._known is None else self._known
        self._known = (known & names) | {newest}
        return newest, newest not in known


def blocked(pattern: bytes) -> str:
    """The error of a pattern's folder, which a glob does not report; else empty."""
    folder = os.path.dirname(pattern) or b"."
    if glob.has_magic(folder):
        return ""
    try:
        os.scandir(folder).close()
    except OSError as error:
        return ": %s %s" % (paths.shown(folder), paths.failure_at(folder, error))
    return ""


class Follower:
    """One log of the spec: finds its file, reads it, and detects when another file replaces it."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]") -> None:
        self.spec = spec
        self._monotonic = monotonic
        self._path = where = paths.encoded(spec["pattern"])
        self._matches = Matches(where, monotonic, self._stat) if glob.has_magic(where) else None
        self.lines = Lines()
        self._file = None  # type: Tail | None
        self._last_path = None  # type: bytes | None
        self._bookmarks = {}  # type: dict[tuple[int, int], Bookmark]
        self._grew_at = monotonic()
        self._reported = None  # type: Line | None
        self._others = None  # type: list[list[Any]] | None
        """Those to be reported with the next chunk: of the file that was opened last."""

    def close(self) -> None:
        """Close the file, with a bookmark in case it comes back."""
        file, self._file = self._file, None
        if file:
            self._bookmarks.pop(file.identity, None)
            self._bookmarks[file.identity] = file.mark
            while len(self._bookmarks) > BOOKMARKS:
                del self._bookmarks[next(iter(self._bookmarks))]
            file.close()

    def _stat(self, path: bytes) -> os.stat_result:
        """A file of another run, or one that another host reads, is missing here."""
        found = os.stat(path)
        is_other = re.match(paths.encoded(self.spec.get("without") or "$^"), path)
        if is_other or (self.spec.get("local") and not is_on_this_host(path, found)):
            raise FileNotFoundError
        return found

    def read(self, slow: bool, trouble: "str | None" = None) -> "list[Line]":
        """The chunks to send."""
        chunks = []  # type: list[Line]
        restarted = None
        try:
            restarted = self._choose(chunks)
            if self._file:
                restarted = self._read_file(self._file) or restarted
        except (OSError, ValueError) as error:
            self.close()
            if self.spec.get("optional") and (paths.is_missing(error) or not os.path.exists(self._path)):
                slow = False
            else:
                trouble = self._error_text(error)
        return [chunk for chunk in (*chunks, self._chunk(restarted, trouble, slow)) if chunk]

    def _error_text(self, error: "OSError | ValueError") -> str:
        if not paths.is_missing(error):
            return "%s: %s" % (paths.shown(self._path), paths.failure(error))
        if self._matches:
            return "no file matches %s%s%s" % (
                self.spec["pattern"],
                " that belongs to no other run" if self.spec.get("without") else "",
                blocked(self._matches.pattern),
            )
        return "%s %s" % (self.spec["pattern"], paths.missing(self._path))

    def _read_file(self, file: Tail) -> "str | None":
        offset = file.mark.offset
        restarted = file.read()
        if restarted or file.mark.offset != offset:
            self._grew_at = self._monotonic()
        return restarted

    def _choose(self, chunks: "list[Line]") -> "str | None":
        """Open the right file. Returns `replaced` or `newer` if it is not the one before."""
        is_new = False
        gone = not os.path.exists(self._path)
        if self._matches and (self._monotonic() >= self._matches.due_at or (gone and self._file)):
            newest, is_new = self._matches.newest()
            still = self._monotonic() - self._grew_at >= STILL
            if newest and (is_new or still or gone or not self._file):
                self._path = newest
        file = self._file
        try:
            found = self._stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            # Renamed or deleted: read on while its writer adds to it. A deleted file is not kept open longer.
            if file is None or not self._still_written(file):
                raise
            return None
        if file and file.identity == (found.st_dev, found.st_ino):
            file.path = self._path
            return None
        return self._open(is_new, chunks)

    def _still_written(self, file: Tail) -> bool:
        offset = file.mark.offset
        self._read_file(file)
        return file.mark.offset != offset

    def _open(self, is_new: bool, chunks: "list[Line]") -> "str | None":
        """Open the chosen file, after the rest of the one before."""
        replaced = self._path == self._last_path
        if self._file:
            self._file.read()
            if replaced:
                self.lines.flush()
            chunks.append(self._chunk(None, None, slow=False))
            self.close()
        file = Tail(self._path, self.lines)
        whole = self._last_path is not None and (replaced or is_new)
        resumed = file.begin(whole, self._bookmarks.get(file.identity))
        before, self._last_path, self._file = self._last_path, self._path, file
        self._grew_at = self._monotonic()
        self._others = self._matches.others if self._matches else None
        return None if before is None or (replaced and resumed) else "replaced" if replaced else "newer"

    def _chunk(self, restarted: "str | None", trouble: "str | None", slow: bool) -> "Line":
        """A chunk; empty without news, except in a slow tick."""
        state = {"k": "log", "id": self.spec["id"], "error": trouble}  # type: Line
        if self._file:
            found = self._file.found
            local = is_on_this_host(self._file.path, found) or None
            state.update(path=paths.shown(self._file.path), size=found.st_size, mtime=found.st_mtime, local=local)
            state["born"] = getattr(self._file.found, "st_birthtime", None)  # not on every system
            state["partial"] = self.lines.partial()
        lines = self.lines.take()
        others, self._others = self._others, None
        if not (lines or others or restarted or slow or state != self._reported):
            return {}
        self._reported = state
        line = dict(state, restarted=restarted, others=others or None, **lines)
        return {name: value for name, value in line.items() if value is not None}

    def state(self) -> "Line | None":
        file = self._file
        if file is None or self._last_path is None:
            return None
        mark, anchor = file.mark, file.mark.anchor.decode("latin-1")
        path = self._last_path.decode("utf-8", "surrogateescape")
        return {"path": path, "file": file.identity, "offset": mark.offset, "line": mark.line, "anchor": anchor}

    def restore(self, state: "Mapping[str, Any]") -> None:
        self._last_path = state["path"].encode("utf-8", "surrogateescape")
        device, inode = state["file"]
        self._bookmarks[device, inode] = Bookmark(state["offset"], state["line"], state["anchor"].encode("latin-1"))


class Logs(paths.Section):
    """The followed logs of the spec."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self.follow(spec.get("logs") or (), Follower)
        expression, self._trouble = spec.get("keep"), None  # type: str | None, str | None
        compiled = None
        try:
            compiled = re.compile(expression) if expression else None
        except re.error as error:
            self._trouble = "step lines are not kept in bursts: their expression is invalid: %s" % error
        for follower in self._known.values():
            follower.lines.keep = compiled
            follower.lines.mentions = tuple(text.encode("utf-8") for text in spec.get("mentions") or ())

    def operations(self, slow: bool) -> "list[Operation]":
        return [("log:" + name, functools.partial(one.read, slow, self._trouble)) for name, one in self._known.items()]

    def state(self) -> "Line":
        """The position in each log, for JSON."""
        states = {name: follower.state() for name, follower in self._known.items()}
        return {name: state for name, state in states.items() if state}

    def restore(self, state: "Mapping[str, Any]") -> None:
        """Continue at another worker's positions, without repeating lines."""
        for name, follower in self._known.items():
            if name in state:
                follower.restore(state[name])
