"""Files whose content identifies what an attempt trains with: its config, the manifest of its data. Python 3.6.

Each is read once, in slices: its path, size, time and SHA-256, and the text of a small one. A file that cannot be read
is tried again every slow tick. A file with `again` is read whenever it has changed; of one with `part`, only the end of
that part is read.
"""

import glob
import os

from collectors.probe import paths
from collectors.probe.files.lines import lines_of
from collectors.probe.stdlib import Any, Callable, Iterator, Line, Mapping, Operation

MAX_BYTES = 256 << 20
"""A manifest with a line for each of two million shards. It takes 1 s; from a slow file server, 5 s."""
MAX_TEXT = 32 << 10
MAX_PART = 48 << 10
BLOCK = 1 << 20
SLICE = 0.25
"""Seconds of reading in one pass. The GPUs must not wait longer."""

HASHES = ("_sha256", "_sha2", "hashlib")
"""Modules with sha256, the lightest first: hashlib loads OpenSSL, which takes 4 MiB."""


class Unusable(Exception):
    """The file cannot be used; the message says why."""


def sha256() -> "Any":
    """A new hash object."""
    for name in HASHES[:-1]:
        try:
            return __import__(name).sha256()
        except ImportError:
            pass
    return __import__(HASHES[-1]).sha256()


def only_match(pattern: bytes) -> bytes:
    """The path of the file.

    Raises:
        Unusable: when not exactly one file matches.
    """
    if not glob.has_magic(pattern) or os.path.lexists(pattern):
        return pattern
    found = glob.glob(pattern)
    if len(found) != 1:
        raise Unusable("%d files match; exactly one must match" % len(found) if found else "no file matches")
    return found[0]


def signature(found: os.stat_result) -> "tuple[int, ...]":
    """What changes when the file is written, or another one takes its place."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def end_of_part(handle: int, size: int, begin: int, end: "int | None") -> "Line":
    """The last lines of a log between two offsets, cut as those that are followed, and whether there are more."""
    stop = size if end is None else min(end, size)
    since = max(begin, stop - MAX_PART)
    data = os.pread(handle, max(0, stop - since), since)
    return {"text": "".join(line + "\n" for line in lines_of(data, is_cut=since > begin)), "is_cut": since > begin}


class Content:
    """One requested file, and how far it has been read."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]") -> None:
        self.spec = dict(spec)
        self.is_watched = bool(spec.get("again"))
        """Whether it is read again when it has changed."""
        self.is_read = False
        self.is_due = True
        """Whether to go on in the next pass. After an error, the next slow tick is soon enough."""
        self._reading = None  # type: Iterator[Line | None] | None
        self._monotonic = monotonic
        self._pattern = str(spec["pattern"])
        self._part = spec.get("part")
        self._reported = None  # type: Line | None
        self._signature = None  # type: tuple[int, ...] | None

    def close(self) -> None:
        """Stop in the middle of the file."""
        self._reading = None

    def advance(self) -> "list[Line]":
        """Read for a slice. Returns a line when the file has been read, or cannot be."""
        until = self._monotonic() + SLICE
        line = None  # type: Line | None
        if self._reading is None:
            if self.is_read and not self._has_changed():
                return []
            self._reading = self._read(paths.encoded(self._pattern))
        try:
            while line is None:
                line = next(self._reading)
                if line is None and self._monotonic() >= until:
                    self.is_due = True
                    return []
            self.is_read = True
        except Unusable as error:
            line = {"error": str(error)}
        except (OSError, ValueError) as error:
            line = {"error": paths.failure_at(paths.encoded(self._pattern), error)}
        self._reading, self.is_due = None, False
        if line == self._reported:
            return []
        self._reported = line
        return [dict(line, k="file", id=self.spec["id"])]

    def _has_changed(self) -> bool:
        """Whether it is another file, or its content has changed, since it was read."""
        try:
            return signature(os.stat(only_match(paths.encoded(self._pattern)))) != self._signature
        except (OSError, Unusable):
            return True

    def _read(self, pattern: bytes) -> "Iterator[Line | None]":
        """None after each block, then the line."""
        path = only_match(pattern)
        handle = paths.open_linked(path)
        try:
            found = os.fstat(handle)
            self._signature = signature(found)
            line = {"path": paths.shown(path), "size": found.st_size, "mtime": found.st_mtime}  # type: Line
            if self._part is not None:
                yield dict(line, **end_of_part(handle, found.st_size, *self._part))
            digest, head = sha256(), b""
            if found.st_size > MAX_BYTES:
                raise Unusable("larger than %d MiB" % (MAX_BYTES >> 20))
            left = found.st_size
            while left > 0:
                block = os.read(handle, min(BLOCK, left))
                if not block:
                    break
                digest.update(block)
                head += block if len(head) <= MAX_TEXT else b""
                left -= len(block)
                yield None
            after = os.fstat(handle)
        finally:
            os.close(handle)
        if (after.st_size, after.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
            raise Unusable("it changed meanwhile")
        line["sha256"] = digest.hexdigest()
        if found.st_size <= MAX_TEXT:
            text = head.decode("utf-8", "replace")
            if "\ufffd" not in text:
                line["text"] = text
        yield line


class Contents(paths.Section):
    """The requested files that have not been read."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self.follow(spec.get("files") or (), Content)

    def operations(self, slow: bool) -> "list[Operation]":
        due = [(name, one) for name, one in self._known.items() if one.is_watched or not one.is_read]
        return [("file:" + name, one.advance) for name, one in due if slow or one.is_due or one.is_watched]
