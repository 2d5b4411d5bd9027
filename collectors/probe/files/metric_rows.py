"""One file of metrics, as far as it was read, and its new rows, with the metrics that are charted. Runs on the node:
Python 3.6."""

import os
import re
import time

from collectors.probe import paths
from collectors.probe.stdlib import Any, Iterable, Line, Mapping

PIECE = 64 * 1024

MAX_CURVES = 300
MAX_OTHERS = 220
"""Metrics without a known name that are sent: their charts come behind the others."""
MAX_METRICS = 10000
MAX_KEY = 200
"""Characters of a name; longer ones are not sent."""

SAMPLED_FROM = 4 << 20
POINTS, MAX_POINTS = 10000, 800000
"""Of files that had more than 4 MiB when they were found, so many points of each metric, as from W&B's server, and of
all metrics."""

NON_FINITE = ("NaN", "Infinity", "-Infinity")
NON_FINITE_BYTES = (b"NaN", b"Infinity", b"-Infinity")


def number_of(text: "bytes | str | float") -> "float | str":
    """A number, such as one of Python's JSON; what is not finite, as a word.

    Raises:
        ValueError: when it is no number.
    """
    value = float(text)
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


class Rows:
    """Of the files that are followed as one: new rows, and changed names, settings and values."""

    def __init__(self, spec: "Mapping[str, Any]", size: int) -> None:
        self._charts = frozenset(spec.get("charts") or ())
        self._pattern = re.compile(spec.get("pattern") or "$^")
        self._others = 0
        self.keys = []  # type: list[str]
        self.columns = {}  # type: dict[str, int | None]
        self._next = []  # type: list[int]
        self._sampled_to = size if size > SAMPLED_FROM else 0
        self.rows = 0
        self.malformed = 0
        self.has_ended = False
        self.step = None  # type: float | None
        self.logged_at = None  # type: float | None
        self.started_at = ""
        """Changes when all rows are read anew, although their numbers may be others."""
        self._points = []  # type: list[list[Any]]
        self._undated = []  # type: list[list[Any]]
        self._dated_at = None  # type: float | None
        self._known = {"summary": {}, "config": {}}  # type: dict[str, dict[str, bytes]]
        self._changed = {}  # type: Line

    def add(self, end: int, step: "float | None", at: "float | None", values: "Iterable[tuple[str, Any]]") -> None:
        """Take over one row that ends at this offset."""
        self.rows += 1
        if at is None or self.logged_at is None or at >= self.logged_at:  # of several writers, the newest row
            self.step, self.logged_at = step, self.logged_at if at is None else min(at, time.time())
        self.add_point(self.rows, end, step, at, values)

    def add_point(
        self, number: float, end: int, step: "float | None", at: "float | None", values: "Iterable[tuple[str, Any]]"
    ) -> None:
        """Take over values that are of this row, or came behind it."""
        found = []  # type: list[tuple[int, Any]]
        for key, text in values:
            column = self.columns[key] if key in self.columns else self._column(key, text)
            is_due = column is not None and (end > self._sampled_to or end >= self._next[column])
            if column is not None and (is_due or text in NON_FINITE_BYTES or text in NON_FINITE):
                found.append((column, text))
        if step is None or not found:
            return
        point = [number, step, at] + [None] * (max(found)[0] + 1)  # type: list[Any]
        for column, text in found:
            try:
                point[3 + column] = number_of(text)
            except ValueError:
                continue  # a text or a table under the name of a metric
            if end <= self._sampled_to:
                self._next[column] = end + self._sampled_to // min(POINTS, MAX_POINTS // len(self.keys))
        self._points.append(point)
        if at is None:
            self._undated.append(point)

    def date(self, written_at: float) -> None:
        """Rows without a time were written since the file was last read, one after the other; those that were in it
        when it was found, at an unknown time."""
        points, before = self._undated, self._dated_at
        self._undated, self._dated_at = [], written_at
        for number, point in enumerate(points, 1):
            point[2] = None if before is None else before + (written_at - before) * number / len(points)
        if points:
            points[-1][2] = self.logged_at = written_at

    def _column(self, key: str, text: "bytes | str | float") -> "int | None":
        """The column of a new metric; None if it is not sent."""
        try:
            float(text)
        except ValueError:
            return None  # its next value may be a number
        if len(self.columns) >= MAX_METRICS or len(key) > MAX_KEY:
            return None
        self.columns[key] = None
        if not key.startswith(("_", "system.")) and len(self.keys) < MAX_CURVES and self._is_wanted(key):
            self.columns[key] = len(self.keys)
            self.keys.append(key)
            self._next.append(0)
        return self.columns[key]

    def _is_wanted(self, key: str) -> bool:
        if self._charts:
            return key in self._charts
        is_known = self._pattern.search(key.lower()) is not None
        self._others += not is_known
        return is_known or self._others <= MAX_OTHERS

    def set_config(self, **values: object) -> None:
        """Send settings, such as the number of steps to train."""
        self._changed["config"] = {key: str(value).encode() for key, value in values.items()}

    def take_points(self) -> "Line":
        """The rows since the last call."""
        points, self._points = self._points, []
        return {"keys": list(self.keys), "points": points} if points else {}

    def take_changes(self) -> "Line":
        """What else has changed since the last call."""
        changed, self._changed = self._changed, {}
        for name in self._known.keys() & changed:
            changed[name] = {key: paths.shown(text) for key, text in changed[name].items()}
        return {name: value for name, value in changed.items() if value}


class Reader:
    """One open file, and how far it was read."""

    is_numbered = True
    """Whether another reader would give the same numbers to the rows."""
    head = b""
    """How the file begins as long as it is continued, and not written anew."""
    prefix = ""
    """Of the names of its metrics: of several directories of one run."""

    def __init__(self, path: bytes, rows: "Any") -> None:
        self.path, self.rows = path, rows
        self.handle = paths.open_linked(path)
        self.found = os.fstat(self.handle)
        self.offset = self.damaged = self.tail = 0
        self._read_at = None  # type: tuple[int, int] | None

    def is_replaced(self) -> bool:
        """Whether another file has come to the path, or it is written anew."""
        found = os.stat(self.path)
        is_same = os.path.samestat(found, self.found) and found.st_size >= self.offset
        return not is_same or os.pread(self.handle, len(self.head), 0) != self.head

    def is_at_end(self) -> bool:
        """Whether nothing has been written since all of it was read."""
        self.found = os.fstat(self.handle)
        return self._read_at == (self.found.st_size, self.found.st_mtime_ns)

    def read_piece(self) -> int:
        """Read the next 64 KiB; returns the number of bytes."""
        begin, size = self.offset, self.found.st_size
        data = os.pread(self.handle, PIECE, begin)
        self.take(data, size)
        if begin + len(data) >= size or self.offset == begin:
            self._read_at = (size, self.found.st_mtime_ns)
            self.rows.date(self.found.st_mtime)
        return len(data)

    def take(self, data: bytes, size: int) -> None:
        """Take over the bytes at `offset` of a file of this size.

        Raises:
            ValueError: when it is another kind of file.
        """
