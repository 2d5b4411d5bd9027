"""One open log file: how far it is read, and whether it is still the same text. Runs on the node: Python 3.6."""

import os
import stat

from collectors.probe import paths
from collectors.probe.files.lines import Lines

TAIL = 64 * 1024
BLOCK = 256 * 1024
READ_LIMIT = 4 * 1024 * 1024
"""Bytes read in one look. A faster writer is skipped ahead of: the newest part is always read."""

COUNT_LIMIT = 16 * 1024 * 1024
"""Of skipped bytes, the last so many have their lines counted."""

ANCHOR = 64

NUL_LOOKS = 3
"""A file server may show new bytes as NUL before it has them: they are read again so many times."""


class Mark:
    """How far a file has been read: enough to go on with it and to notice that it is no longer the same text."""

    def __init__(self, offset: int = 0, line: int = 0, anchor: bytes = b"") -> None:
        self.offset = offset
        self.line = line  # where the unfinished line began
        self.anchor = anchor  # the last bytes before offset


class Tail:
    """An open log. Its lines go into `lines`."""

    def __init__(self, path: bytes, lines: Lines) -> None:
        # Asked before opening: to open a FIFO wakes its writer, to open a tape rewinds it.
        refuse_special(os.stat(path))
        self.path = path
        self.mark = Mark()
        self._lines = lines
        self._handle = paths.open_quietly(path)
        self._nul_looks = 0
        try:
            self.found = os.fstat(self._handle)
            refuse_special(self.found)
        except BaseException:
            os.close(self._handle)
            raise

    @property
    def identity(self) -> "tuple[int, int]":
        return (self.found.st_dev, self.found.st_ino)

    def close(self) -> None:
        os.close(self._handle)

    def begin(self, whole: bool, mark: "Mark | None" = None) -> bool:
        """Begin after what a mark says was read (true), else at the start or with the file's last 64 KiB."""
        if mark and mark.offset <= self.found.st_size and self._is_at(mark):
            self.mark = Mark(mark.line, mark.line)
            self._lines.begin()
            return True
        start = 0 if whole else max(0, self.found.st_size - TAIL)
        self.mark = Mark(start, start)
        self._lines.begin(inside=start > 0)
        if not whole:
            self._lines.look_back()
        return False

    def _is_at(self, mark: Mark) -> bool:
        return os.pread(self._handle, len(mark.anchor), mark.offset - len(mark.anchor)) == mark.anchor

    def read(self) -> "str | None":
        """Read what is new, up to the size of this moment. Says "truncated" when the text began anew."""
        before, self.found = self.found, os.fstat(self._handle)
        changed = (before.st_mtime_ns, before.st_size) != (self.found.st_mtime_ns, self.found.st_size)
        restarted = None
        if self.found.st_size < self.mark.offset or (changed and not self._is_at(self.mark)):
            self.begin(whole=True)
            restarted = "truncated"
        if self.found.st_size - self.mark.offset > READ_LIMIT:
            self._skip_to(self.found.st_size - READ_LIMIT)
        self._read_on()
        return restarted

    def _read_on(self) -> None:
        size, mark = self.found.st_size, self.mark
        while mark.offset < size:
            data = os.pread(self._handle, min(BLOCK, size - mark.offset), mark.offset)
            if not data:
                return
            if data.endswith(b"\0") and mark.offset + len(data) == size and self._nul_looks < NUL_LOOKS:
                self._nul_looks += 1
                data = data.rstrip(b"\0")
                size = mark.offset + len(data)
            else:
                self._nul_looks = 0
            newline = data.rfind(b"\n")
            if newline >= 0:
                mark.line = mark.offset + newline + 1
            mark.offset += len(data)
            mark.anchor = (mark.anchor + data[-ANCHOR:])[-ANCHOR:]
            self._lines.feed(data)

    def _skip_to(self, target: int) -> None:
        position, count = max(self.mark.offset, target - COUNT_LIMIT), 0
        while position < target:
            data = os.pread(self._handle, min(BLOCK, target - position), position)
            if not data:
                break
            position += len(data)
            count += data.count(b"\n")
        self._lines.skip(count)
        self.mark = Mark(target, target)


def refuse_special(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("%s, not a regular file: it is not read" % paths.kind(found.st_mode))
