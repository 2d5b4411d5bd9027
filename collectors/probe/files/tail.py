"""One open log file: how far it was read, and whether its text is still the same. Runs on the node: Python 3.6."""

import os

from collectors.probe import paths
from collectors.probe.files.lines import Lines

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
