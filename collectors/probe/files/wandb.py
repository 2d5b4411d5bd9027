"""The newest `.wandb` file of a directory: its new rows, with the metrics of the charts. Runs on the node: Python 3.6.

Clients of wandb write it every 15 seconds, old ones in blocks of 32 KiB: its newest row may be minutes old.
"""

import functools
import os
import re

from collectors.probe import paths
from collectors.probe.files.disks import is_on_this_host
from collectors.probe.files.wandb_records import Metrics, Records
from collectors.probe.stdlib import Any, Callable, Line, Mapping, Operation

PIECE = 64 * 1024
RATE = 1e6
"""Bytes per second that are read, of all files together that are on no disk of this machine: the training uses the same
file system."""
MAX_BUDGET = 2 * RATE
PIECES_S = 0.1
"""Seconds after which the next piece waits for the next period: the GPUs are read in between."""
LOCAL_PIECES_S = 0.25
"""The same of a file on a disk of this machine, whose next piece comes after the other operations of this period."""

LIST_EVERY = 10.0
LIST_SHARE = 50.0
"""Listing a directory takes at most a fiftieth of the time."""

RUN_DIRECTORY = re.compile(rb"(?:offline-)?run-(\d{8}_\d{6}-.+)")


class WandbFile:
    """One open file."""

    def __init__(self, path: bytes, spec: "Mapping[str, Any]") -> None:
        self.path = path
        self.handle = paths.open_linked(path)
        self.found = os.fstat(self.handle)
        self.records = Records()
        self.metrics = Metrics(spec, self.found.st_size)
        self.is_over = False
        """Whether a newer run has begun."""
        self._read_at = None  # type: tuple[int, int] | None

    @property
    def identity(self) -> "tuple[int, int]":
        return (self.found.st_dev, self.found.st_ino)

    @property
    def damaged(self) -> int:
        """The parts that were skipped. What is incomplete at the end is one of them once nothing more will come."""
        return self.records.damaged + self.metrics.malformed + self.records.tail - self.awaited

    @property
    def awaited(self) -> int:
        """The incomplete parts at the end, while more may come."""
        return 0 if self.is_over or self.metrics.has_ended else self.records.tail

    def is_at_end(self) -> bool:
        """Whether nothing has been written since all of it was read."""
        self.found = os.fstat(self.handle)
        return self._read_at == (self.found.st_size, self.found.st_mtime_ns)

    def read_piece(self) -> int:
        """Read the next 64 KiB; returns the number of bytes."""
        data = os.pread(self.handle, PIECE, self.records.offset)
        is_end = self.records.offset + len(data) >= self.found.st_size
        for end, record in self.records.read(data, is_end):
            self.metrics.add(end, record)
        if is_end:
            self._read_at = (self.found.st_size, self.found.st_mtime_ns)
        return len(data)


class Follower:
    """The newest file of one directory."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]") -> None:
        self.spec = spec
        self.rate = RATE
        self._directory = paths.encoded(spec["directory"])
        self._monotonic = monotonic
        self._file = None  # type: WandbFile | None
        self._list_at = 0.0
        self._budget, self._refilled_at = RATE, monotonic()
        self._error = None  # type: str | None
        self._goes_on = False
        self._left = None  # type: Line | None
        self._reported = None  # type: Line | None

    def close(self) -> None:
        file, self._file = self._file, None
        if file:
            os.close(file.handle)

    def read(self, slow: bool) -> "list[Line]":
        """The lines to send: one for each piece of the file."""
        lines = []  # type: list[Line]
        try:
            if self._monotonic() >= self._list_at:
                self._choose()
            if self._file:
                self._error = None
                lines = self._read_file(self._file)
        except (OSError, ValueError) as error:
            path = self._file.path if self._file else self._directory
            self._error = "%s: %s" % (paths.shown(path), paths.failure_at(path, error))
            self.close()
        state = self._state()
        changes = self._file.metrics.take_changes() if self._file else {}
        if lines:
            lines[-1].update(state, **changes)
        elif changes or slow or state != self._reported:
            lines = [dict(state, **changes)]
        self._reported = state
        left, self._left = self._left, None
        lines = ([left] if left else []) + lines
        if self._goes_on:
            lines[-1]["again"], self._goes_on = True, False
        return [dict(line, k="wandb", id=self.spec["id"]) for line in lines]

    def _read_file(self, file: WandbFile) -> "list[Line]":
        found = os.stat(file.path)
        is_other = (found.st_dev, found.st_ino) != file.identity
        if is_other or found.st_size < file.records.offset:
            self._open(file.path)
            file = self._file or file
        now = self._monotonic()
        self._budget = min(MAX_BUDGET, self._budget + self.rate * (now - self._refilled_at))
        self._refilled_at = now
        is_local = is_on_this_host(file.path, file.found)
        lines = []
        while (is_local or self._budget > 0) and not file.is_at_end():
            self._budget -= file.read_piece()
            points = file.metrics.take_points()
            if points:
                lines.append(dict(self._state(), **points, **file.metrics.take_changes()))
            if self._monotonic() - now > (LOCAL_PIECES_S if is_local else PIECES_S):
                self._goes_on = is_local
                break
        return lines

    def _state(self) -> "Line":
        file = self._file
        if file is None:
            return {"error": self._error}
        metrics = file.metrics
        state = {
            "path": paths.shown(file.path),
            "file": "%d %s" % (file.found.st_ino, metrics.started_at),
            "size": file.found.st_size,
            "mtime": file.found.st_mtime,
            "offset": file.records.offset,
            "rows": metrics.rows,
            "damaged": file.damaged,
            "tail": file.awaited or None,
            "more": not file.is_at_end() or None,
            "step": metrics.step,
            "logged_at": metrics.logged_at,
            "error": self._error,
        }
        return {name: value for name, value in state.items() if value is not None}

    def _choose(self) -> None:
        """Open the file of the newest run directory, if that has one."""
        started_at = self._monotonic()
        self._list_at = started_at + LIST_EVERY
        path = newest_file(self._directory)
        ended = self._monotonic()
        self._list_at = ended + min(60.0, max(LIST_EVERY, LIST_SHARE * (ended - started_at)))
        if self._file is None or path != self._file.path:
            if self._file and self._file.records.tail and not self._file.metrics.has_ended:
                self._file.is_over = True  # a newer run has begun: what is incomplete at its end is damaged
                self._left = self._state()
            self._open(path)

    def _open(self, path: bytes) -> None:
        self.close()
        self._file = WandbFile(path, self.spec)


def newest_file(directory: bytes) -> bytes:
    """The `.wandb` file of the run that began last, by the time in the name of its directory.

    Raises:
        ValueError: when there is none.
    """
    matches = filter(None, map(RUN_DIRECTORY.match, os.listdir(directory)))
    names = [match.group() for match in sorted(matches, key=lambda match: match.group(1), reverse=True)]
    for name in names[:5]:
        folder = os.path.join(directory, name)
        try:
            files = sorted(file for file in os.listdir(folder) if file.endswith(b".wandb"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if files:
            return os.path.join(folder, files[-1])
    if names:
        raise ValueError("its newest run directory has no .wandb file yet")
    raise ValueError("has no directory run-… or offline-run-…; the W&B client makes them in the directory `wandb`")


class WandbFiles(paths.Section):
    """The followed directories of the spec."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self.follow(spec.get("wandb") or (), Follower)
        for follower in self._known.values():
            follower.rate = RATE / len(self._known)

    def operations(self, slow: bool) -> "list[Operation]":
        return [("wandb:" + name, functools.partial(one.read, slow)) for name, one in self._known.items()]
