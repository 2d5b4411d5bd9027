"""Ring buffers of numbers: one hour at the sampling period, one day at one value per minute, and for disks one week at
one value per ten minutes. The engine owns them.

An hour of 4 metrics of 2,048 GPUs is 577 MiB as deques of floats; as 16-bit columns, a row a node sample, it is 29.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heapreplace
from itertools import chain, compress, count, cycle
from operator import attrgetter
from typing import Any, Literal

from msgspec.structs import replace

from trainmon.analysis.wandb import client_file, log_curves
from trainmon.lib import DAY, HOUR, MINUTE, Instant, Seconds, drop_oldest
from trainmon.model import GPU_METRICS, Curve, Disk, DiskHistoryRead, Gpu, GpuHistoryRead, Points, Series, WandbRows

WEEK = 7 * DAY
TEN_MINUTES = 600.0

DISK_METRICS = ("free_bytes", "free_inodes", "quota_left_bytes", "quota_left_inodes")

DISK_RINGS = ((360, -math.inf), (int(DAY / MINUTE), MINUTE), (int(WEEK / TEN_MINUTES), TEN_MINUTES))
"""The rings of a disk, of one hour, one day and one week: their capacity, and the seconds between two rows."""

RESIZES = 32
"""The maximum number of size changes that are kept of one disk."""

MOST_GPUS = 128
"""The maximum number of GPUs of one node that have a history. The node reports the index of a GPU, so it must be
limited."""

NUMBERS = attrgetter(*(field for field, _ in GPU_METRICS.values()))
UNITS = tuple(unit for _, unit in GPU_METRICS.values())

UNKNOWN = 0xFFFF
EMPTY = Series(offsets=(), values=())


class Ring:
    """The last `capacity` rows of `columns` numbers, each row with its time. It grows to its capacity; then each new
    row replaces the oldest."""

    def __init__(
        self, code: Literal["H", "d"], columns: int, capacity: int, rows: Iterable[tuple[Instant, array[Any]]] = ()
    ) -> None:
        self.columns = columns
        self.capacity = capacity
        self.times = array("d")
        self.values: array[Any] = array(code)
        self.next = 0
        for at, row in rows:
            self.append(at, row)

    def append(self, at: Instant, row: array[Any]) -> None:
        if len(self.times) < self.capacity:
            self.times.append(at)
            self.values.extend(row)
            return
        self.times[self.next] = at
        start = self.next * self.columns
        self.values[start : start + self.columns] = row
        self.next = (self.next + 1) % self.capacity

    def rows(self) -> Iterator[tuple[Instant, array[Any]]]:
        """Each row with its time, oldest first."""
        for row in (*range(self.next, len(self.times)), *range(self.next)):
            yield self.times[row], self.values[row * self.columns : (row + 1) * self.columns]

    def last_at(self) -> Instant:
        """The time of the newest row, or minus infinity."""
        return self.times[self.next - 1] if self.times else -math.inf

    def column(self, index: int, since: Instant) -> tuple[Sequence[float], Sequence[float]]:
        """Times and values of one column since an instant, oldest first."""
        times = self.times[self.next :] + self.times[: self.next]
        values = self.values[index :: self.columns]
        values = values[self.next :] + values[: self.next]
        start = bisect_left(times, since)
        return times[start:], values[start:]


class History:
    """The recorded numbers, by subject: `node/3` for a GPU, a Disk.key for a disk."""

    def __init__(self) -> None:
        self._hour: dict[str, Ring] = {}
        self._day: dict[str, Ring] = {}
        self._disk_rings: tuple[dict[str, Ring], ...] = ({}, {}, {})
        """Rings of one hour, one day and one week."""
        self._sizes: dict[str, list[tuple[Instant, float]]] = {}
        """The sizes of each disk, each with the time of the change."""

    def record_gpus(self, node: str, at: Instant, gpus: Sequence[Gpu], period: Seconds) -> None:
        """Add one sample of all GPUs of a node. If the number of GPUs changed, the rings of the node start again."""
        known = {gpu.index: gpu for gpu in gpus if 0 <= gpu.index < MOST_GPUS}
        gpus = [known.get(index) or Gpu(index=index) for index in range(max(known, default=-1) + 1)]
        row = array("H", map(_count, chain.from_iterable(map(NUMBERS, gpus)), cycle(UNITS)))
        hour = self._hour.get(node)
        if hour is None or hour.columns != len(row):
            hour = self._hour[node] = Ring("H", len(row), int(HOUR / period))
            self._day[node] = Ring("H", len(row), int(DAY / MINUTE))
        elif hour.capacity < int(HOUR / period):  # it is read over SSH now, and more often
            hour = self._hour[node] = Ring("H", len(row), int(HOUR / period), hour.rows())
        hour.append(at, row)
        day = self._day[node]
        if at - day.last_at() >= MINUTE:
            day.append(at, row)

    def restore_gpus(self, past: GpuHistoryRead, period: Seconds) -> None:
        """Put the past of a node's GPUs before what was recorded here. A GPU that is not known now is left out."""
        rings, every, span = (self._hour, period, HOUR) if past.span <= HOUR else (self._day, MINUTE, DAY)
        known = rings.get(past.node)
        gpus = 1 + max(index for index, _ in past.columns)
        width = min(gpus, MOST_GPUS) * len(GPU_METRICS) if known is None else known.columns
        rows = []
        units = [
            (index, field, unit) for index in range(width // len(GPU_METRICS)) for field, unit in GPU_METRICS.values()
        ]
        first = math.inf if known is None or not known.times else known.times[known.next % len(known.times)]
        for number in range(past.length):
            values = [past.columns.get((index, field)) for index, field, _ in units]
            numbers = [math.nan if column is None else column[number] for column in values]
            at = past.start + number * past.step
            if at < first and not all(map(math.isnan, numbers)):
                counts = zip(numbers, units, strict=True)
                rows.append(
                    (at, array("H", [_count(None if math.isnan(n) else n, unit) for n, (_, _, unit) in counts]))
                )
        rows += [] if known is None else known.rows()
        rings[past.node] = Ring("H", width, int(span / every), rows)

    def record_disk(self, disk: Disk) -> None:
        """Add one sample of a disk that answered; disks are sampled every 10 s."""
        quota = disk.quota
        allowed = (None, None) if quota is None else (quota.left_bytes, quota.left_inodes)
        row = array("d", [math.nan if n is None else n for n in (disk.free_bytes, disk.free_inodes, *allowed)])
        if disk.key in self._disk_rings[0] and disk.at < self._disk_rings[0][disk.key].last_at() - MINUTE:
            self._forget_disk(disk.key)  # the clock was set back: points in the future show no trend
        if disk.total_bytes is not None:
            sizes = self._sizes.setdefault(disk.key, [])
            if not sizes or sizes[-1][1] != disk.total_bytes:
                sizes.append((disk.at, disk.total_bytes))
                del sizes[:-RESIZES]
        for rings, (capacity, every) in zip(self._disk_rings, DISK_RINGS, strict=True):
            ring = rings.setdefault(disk.key, Ring("d", len(row), capacity))
            if disk.at - ring.last_at() >= every:
                ring.append(disk.at, row)

    def restore_disks(self, past: DiskHistoryRead) -> None:
        """Put the past of a node's disks before what was recorded here."""
        for path, columns in past.columns.items():
            key = f"{past.node}:{path}"
            known = self._disk_rings[0].get(key)
            first = math.inf if known is None or not known.times else min(known.times)
            rows = [(at, row) for at, row in _past_rows(past, columns) if at < first]
            for rings, (capacity, every) in zip(self._disk_rings, DISK_RINGS, strict=True):
                ring, own = Ring("d", len(DISK_METRICS), capacity), rings.get(key)
                for at, row in rows:
                    if at - ring.last_at() >= every:
                        ring.append(at, row)
                for at, row in () if own is None else own.rows():
                    ring.append(at, row)
                rings[key] = ring
            then = zip(_times(past), columns.get("total_bytes", ()), strict=False)
            sizes: list[tuple[Instant, float]] = []
            for at, size in (*((at, size) for at, size in then if at < first), *self._sizes.get(key, ())):
                if not math.isnan(size) and (not sizes or sizes[-1][1] != size):
                    sizes.append((at, size))
            self._sizes[key] = sizes[-RESIZES:]

    def series(self, subject: str, metric: str, span: Seconds, now: Instant) -> Series:
        """The last `span` seconds of a metric; empty if it is not known. For `size_bytes` of a disk: its changes."""
        if metric == "size_bytes":
            sizes = self._sizes.get(subject, ())
            return Series(tuple(at - now for at, _ in sizes), tuple(size for _, size in sizes))
        if metric in DISK_METRICS:
            return self._disk_series(subject, DISK_METRICS.index(metric), span, now)
        node, _, index = subject.rpartition("/")
        if metric not in GPU_METRICS or not index.isdigit():
            return EMPTY
        column = int(index) * len(GPU_METRICS) + list(GPU_METRICS).index(metric)
        rings = self._hour if span <= HOUR else self._day
        return _series(rings.get(node), column, GPU_METRICS[metric][1], span, now, UNKNOWN)

    def _disk_series(self, key: str, column: int, span: Seconds, now: Instant) -> Series:
        """With a span above one day: one value per ten minutes, then the last day at its full resolution."""
        hour, day, week = (rings.get(key) for rings in self._disk_rings)
        fine = _series(hour if span <= HOUR else day, column, 1.0, span, now)
        if span <= DAY or not fine.offsets:
            return fine
        coarse = _series(week, column, 1.0, span, now)
        older = bisect_left(coarse.offsets, fine.offsets[0])
        return Series(coarse.offsets[:older] + fine.offsets, coarse.values[:older] + fine.values)

    def forget(self, node: str) -> None:
        """Drop the history of a node and its disks."""
        for rings in (self._hour, self._day):
            rings.pop(node, None)
        for key in [key for key in self._disk_rings[0] if key.startswith(f"{node}:")]:
            self._forget_disk(key)

    def _forget_disk(self, key: str) -> None:
        self._sizes.pop(key, None)
        for rings in self._disk_rings:
            rings.pop(key, None)


def _times(past: DiskHistoryRead) -> Iterator[Instant]:
    return (past.start + row * past.step for row in count())


def _past_rows(past: DiskHistoryRead, columns: Mapping[str, Sequence[float]]) -> Iterator[tuple[Instant, array[float]]]:
    """The rows of one disk, each with its time. What a quota left is not known."""
    free, files = columns.get("free_bytes"), columns.get("free_inodes")
    blank = array("d", [math.nan]) * max(len(free or ()), len(files or ()))
    for at, values in zip(_times(past), zip(free or blank, files or blank, strict=True), strict=False):
        if not all(map(math.isnan, values)):
            yield at, array("d", [*values, math.nan, math.nan])


@lru_cache(8192)
def _count(value: float | None, unit: float) -> int:
    return UNKNOWN if value is None else min(UNKNOWN - 1, max(0, round(value / unit)))


def _series(
    ring: Ring | None, column: int, unit: float, span: Seconds, now: Instant, unknown: float | None = None
) -> Series:
    if ring is None or column >= ring.columns:
        return EMPTY
    times, values = ring.column(column, now - span)
    return Series(
        offsets=tuple([at - now for at in times]),
        values=tuple(values)
        if unknown is None and unit == 1.0
        else tuple(math.nan if value == unknown else value * unit for value in values),
    )


POINTS_AT_MOST = 200_000
"""The maximum number of points of one curve. Beyond it, every second point of the older half is dropped, and the epoch
changes."""

LOG_POINTS_AT_MOST = 2 * 1024 * 1024 // 24
"""The same for all curves of one log together: 2 MiB of steps, times and values. The longest curve gives way."""
ALL_LOGS_AT_MOST = 4 * LOG_POINTS_AT_MOST
"""The same for all logs: of more than four, each has its share, so that a daemon stays within 90 MiB."""

ALL_POINTS_AT_MOST = 4_000_000
"""The same for all curves: 96 MB."""

CURVES_AT_MOST = 30_000
"""The maximum number of curves: enough for a hundred runs with 300 metrics. Beyond it, the curves that grew longest ago
are dropped: of runs that all grow, all would be in turn."""


class Curves:
    """All curves, by WandbRun.path and metric. The curve that grew last is the last one."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str], Curve] = {}
        self._epochs = count(1)
        self._unfitted = 0
        """Points that came since all curves were made to fit."""
        self._files: dict[str, tuple[str, int]] = {}
        """By path: the file that its curves come from, and how many of its rows they have."""

    def grow(self, path: str, points: Mapping[str, Points], *, fresh: bool, is_older: bool = False) -> None:
        """Append points, or put older ones before the known ones. With `fresh`, they replace the curve."""
        for key, new in points.items():
            curve = self._curves.pop((path, key), None)
            if curve is None or fresh:
                curve = Curve(next(self._epochs), 0, array("d"), array("d"), array("d"))
            if is_older:
                curve = self._with_older(curve, new)
            else:
                curve.steps.extend(new.steps)
                curve.times.extend(new.times)
                curve.values.extend(new.values)
            self._curves[path, key] = curve
            if len(curve.steps) > POINTS_AT_MOST:
                self._thin((path, key))
        drop_oldest(self._curves, CURVES_AT_MOST)
        self._unfitted += sum(len(new.steps) for new in points.values())
        if self._unfitted > ALL_POINTS_AT_MOST // 100:
            self._unfitted = 0
            logs = {of.rpartition("/")[0] for of, _ in self._curves if of.startswith(f"{log_curves.ENTITY}/")}
            for log in logs:
                self._fit(f"{log}/", min(LOG_POINTS_AT_MOST, ALL_LOGS_AT_MOST // len(logs)))
            self._fit("", ALL_POINTS_AT_MOST)

    def _with_older(self, curve: Curve, older: Points) -> Curve:
        """Some of them may be known."""
        new = [not curve.steps or step < curve.steps[0] for step in older.steps]
        columns = zip((older.steps, older.times, older.values), (curve.steps, curve.times, curve.values), strict=True)
        return Curve(next(self._epochs), 0, *(array("d", compress(was, new)) + now for was, now in columns))

    def _thin(self, of: tuple[str, str]) -> None:
        curve = self._curves[of]
        half = len(curve.steps) // 2
        for column in (curve.steps, curve.times, curve.values):
            column[:half] = column[:half:2]
        self._curves[of] = replace(curve, epoch=next(self._epochs))

    def _fit(self, begin: str, most: int) -> None:
        """Thin the curves whose paths begin so."""
        sizes = [(-len(curve.steps), of) for of, curve in self._curves.items() if of[0].startswith(begin)]
        heapify(sizes)
        total = -sum(size for size, _ in sizes)
        while total > most:
            before, longest = sizes[0]
            self._thin(longest)
            after = -len(self._curves[longest].steps)
            heapreplace(sizes, (after, longest))
            total += before - after

    def follow_file(self, rows: WandbRows) -> None:
        """Append new rows of the file of a W&B client. A reader that starts again repeats rows; another file of the
        same path begins its curves again."""
        path = client_file.path_of(rows)
        file, known = self._files.get(path, ("", 0))
        if file != rows.file:
            known = 0
            for key in [key for key in self._curves if key[0] == path]:
                del self._curves[key]
        self._files[path] = rows.file, max(known, rows.rows)
        for name, points in client_file.points_of(rows, known).items():
            for attempt in client_file.attempts_in(points):
                self._go_back((path, name), attempt.steps[0])
                self.grow(path, {name: attempt}, fresh=False)
        drop_oldest(self._files, CURVES_AT_MOST)

    def _go_back(self, of: tuple[str, str], step: float) -> None:
        """Drop from a curve what a restart repeats."""
        curve = self._curves.get(of)
        if curve is not None and curve.steps[-1] > step:
            first = bisect_left(curve.steps, step)
            for column in (curve.steps, curve.times, curve.values):
                del column[first:]
            self._curves[of] = replace(curve, epoch=next(self._epochs))

    def read(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        """A copy of one curve from point `start` on, or all of it if the epoch has changed. An unknown curve has epoch
        0."""
        curve = self._curves.get((path, key))
        if curve is None:
            return Curve(0, 0, array("d"), array("d"), array("d"))
        begin = min(start, len(curve.steps)) if epoch == curve.epoch else 0
        return Curve(curve.epoch, begin, curve.steps[begin:], curve.times[begin:], curve.values[begin:])
