"""The pane's copies of the engine's curves, their reduction to screen columns, and columns to dots. Pure.

A copy has ascending x values, and smooths each point once.

100,000 points become 200 columns. No visible detail is lost: a spike of one point is the highest value of its column.
When a curve grows, only its last columns are computed again. For another window, two extremes stand for each 64 points,
which takes a fifth of the time.

A cell of Braille has 2 by 4 dots; in ASCII a cell is one dot. plotext takes 5 to 40 ms to draw one curve of 300
columns, and draws all of it again for one more point. With three attempts and eight charts, each key took half a
second. Dots from columns take half a millisecond.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import accumulate, islice
from operator import le
from typing import NamedTuple

from trainmon.model import Curve, Points

# ---- the pane's copies of the engine's curves ------------------------------------------------------------------------

Read = Callable[[str, str, int, int], Curve]
"""Backend.curve."""


LARGEST_STEP = 1e15
"""The largest value that can be a step; a larger one is something else under that name."""

LAST_DATE = 4e9
"""The latest time (in 2096)."""


def is_ascending(xs: array[float], least: float, most: float) -> bool:
    """Whether all are in order and within the bounds; nan is not."""
    return not xs or (least <= xs[0] and xs[-1] <= most and all(map(le, xs, islice(xs, 1, None))))


class Copy:
    """One metric of one attempt, as of its last read."""

    def __init__(self) -> None:
        self.epoch = 0
        self.read = 0
        """Points read from the engine. The copy has fewer if some had no step."""
        self.version = 0
        """Changes when old points changed: nothing derived from them is valid. Otherwise the curve only grew."""
        self.steps, self.times, self.values = array("d"), array("d"), array("d")
        self.columns: dict[float, Columns] = {}
        """Those that were drawn, by the weight of the smoothing."""
        self._smoothed = Smoothed(0.0)

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, curve: Curve) -> bool:
        """Add the points of a read. False if there were none."""
        if curve.epoch == self.epoch and curve.start == self.read and not curve.steps:
            return False
        if curve.epoch != self.epoch or curve.start != self.read:
            self._forget(curve.epoch)
            if curve.start:  # it has become shorter, as a replay has gone back: its next read has all of it
                return True
        self.read = curve.start + len(curve.steps)
        begin = max(0, len(self.steps) - 1)
        self.steps.extend(curve.steps)
        self.times.extend(curve.times)
        self.values.extend(curve.values)
        if not is_ascending(self.steps[begin:], -LARGEST_STEP, LARGEST_STEP):
            self._sort()
        if not is_ascending(self.times[begin:], 0.0, LAST_DATE):
            self._straighten()
        return True

    def _forget(self, epoch: int) -> None:
        self.epoch, self.read, self.version = epoch, 0, self.version + 1
        for column in (self.steps, self.times, self.values):
            del column[:]
        self._smoothed = Smoothed(0.0)

    def _sort(self) -> None:
        """Sort by step: steps go back when a trainer resumes an older checkpoint within one W&B run."""
        steps = self.steps
        order = sorted(
            (index for index in range(len(steps)) if -LARGEST_STEP <= steps[index] <= LARGEST_STEP),
            key=steps.__getitem__,
        )
        for column in (self.steps, self.times, self.values):
            column[:] = array("d", [column[index] for index in order])
        self.version += 1
        self._smoothed = Smoothed(0.0)

    def _straighten(self) -> None:
        """Make times ascend: after a clock was set back, time stands still until it catches up. Unknown: as before."""
        start = next((at for at in self.times if 0.0 <= at <= LAST_DATE), 0.0)
        self.times = array("d", accumulate(self.times, lambda a, b: b if a < b <= LAST_DATE else a, initial=start))
        del self.times[0]
        self.version += 1

    # ---- reading ----

    def xs(self, *, by_time: bool) -> array[float]:
        return self.times if by_time else self.steps

    def ys(self, weight: float) -> array[float]:
        """The values, smoothed if there is a weight."""
        if not weight:
            return self.values
        if weight != self._smoothed.weight:
            self._smoothed = Smoothed(weight)
        return self._smoothed.follow(self.values)

    def between(self, low: float, high: float, *, by_time: bool) -> Points:
        """The points from one step or time to another."""
        xs = self.xs(by_time=by_time)
        part = slice(bisect_left(xs, low), bisect_right(xs, high))
        return Points(self.steps[part], self.times[part], self.values[part])

    def index_of(self, step: float) -> int:
        """The index of the last point at or before this step; without any, 0."""
        return max(0, bisect_right(self.steps, step) - 1)

    def value_at(self, x: float, weight: float, *, by_time: bool) -> float | None:
        """The last value at or before this step or time."""
        index = bisect_right(self.xs(by_time=by_time), x) - 1
        return self.ys(weight)[index] if index >= 0 else None

    def crossed(self, x: float, *, by_time: bool) -> float | None:
        """The first step at or after this time, or the time of the first step at or after this one."""
        xs, others = (self.times, self.steps) if by_time else (self.steps, self.times)
        index = bisect_left(xs, x)
        return others[index] if index < len(xs) else None


class Smoothed:
    """An exponential moving average that grows with its curve.

    As in TensorBoard, and in W&B as "Exponential moving average (EMA) smoothing" (docs.wandb.ai, "Smooth line plots"):
    last = weight · last + (1 - weight) · value, divided by 1 - weight^count, so that the start is not drawn to zero.
    Values that are not finite are shown unchanged, and are not averaged.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.values = array("d")
        self._last, self._left = 0.0, 1.0

    def follow(self, values: array[float]) -> array[float]:
        weight, fresh = self.weight, 1.0 - self.weight
        last, left, add = self._last, self._left, self.values.append
        for value in islice(values, len(self.values), None):
            if value - value == 0.0:  # finite; math.isfinite is a call, and 100,000 calls are 3 ms
                last = last * weight + fresh * value
                left *= weight
                add(last / (1.0 - left))
            else:
                add(value)
        self._last, self._left = last, left
        return self.values


class Copies:
    """The copies of a pane: only of the curves that it shows."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._copies: dict[tuple[str, str], Copy] = {}

    def update(self, path: str, key: str) -> Copy:
        """Read the new points of a metric of an attempt."""
        copy = self._copies.setdefault((path, key), Copy())
        copy.take(self._read(path, key, copy.epoch, copy.read))
        return copy

    def known(self, path: str, key: str) -> Copy:
        """The copy as of its last read."""
        return self._copies.get((path, key)) or NOTHING

    def keep(self, paths: Container[str], keys: Container[str]) -> None:
        """Forget all others: 100,000 points are 2.4 MB."""
        self._copies = {(p, k): copy for (p, k), copy in self._copies.items() if p in paths and k in keys}


NOTHING = Copy()


# ---- columns: the lowest, highest and last value of each -------------------------------------------------------------

NAN, UP, DOWN = 1, 2, 4
"""Flags of a column: it contains nan, inf, -inf."""


class Column(NamedTuple):
    """The values in one column. Without a finite one, low, high and last are nan."""

    low: float
    high: float
    last: float
    odd: int = 0

    @property
    def is_drawn(self) -> bool:
        return self.low == self.low


class Frame(NamedTuple):
    """The visible part of an x axis, and its number of columns."""

    low: float
    high: float
    columns: int

    def column_of(self, x: float) -> int:
        """The column of an x within the frame."""
        return min(self.columns - 1, max(0, int((x - self.low) / (self.high - self.low) * self.columns)))

    def __contains__(self, x: object) -> bool:
        return isinstance(x, float) and self.low <= x <= self.high


FAR = 1e100
"""A larger number counts as infinite: on an axis that shows it, nothing else would be visible."""


def column(values: array[float]) -> Column:
    """The column of at least one value. The sum shows in one pass whether all are finite, as they nearly always are."""
    total = sum(values)
    if -FAR < total < FAR:
        low, high = min(values), max(values)
        if low > -FAR and high < FAR:
            return Column(low, high, values[-1])
    near = [value for value in values if -FAR < value < FAR]
    odd = (
        (NAN if any(value != value for value in values) else 0)
        | (UP if any(value >= FAR for value in values) else 0)
        | (DOWN if any(value <= -FAR for value in values) else 0)
    )
    return Column(min(near), max(near), near[-1], odd) if near else Column(math.nan, math.nan, math.nan, odd)


BLOCK = 64


class Columns:
    """The columns of one curve in one frame, updated while the curve grows."""

    def __init__(self) -> None:
        self._extremes = array("d")
        """The lowest and the highest of each 64 values; nan if one of them is not finite."""
        self._frame: tuple[Frame, bool] | None = None
        self._version: object = None
        self._done = 0
        self._columns: list[Column | None] = []

    def of(
        self, xs: array[float], ys: array[float], frame: Frame, version: object, *, along: bool = False
    ) -> list[Column | None]:
        """The columns. `version` changes when old points changed; `along`: x is the time."""
        if version != self._version:
            self._version, self._frame, self._extremes = version, None, array("d")
        if (frame, along) != self._frame:
            self._frame, self._done, self._columns = (frame, along), 0, [None] * frame.columns
        for start in range(BLOCK * len(self._extremes) // 2, len(ys) - BLOCK + 1, BLOCK):
            made = column(ys[start : start + BLOCK])
            self._extremes.extend((math.nan, math.nan) if made.odd else (made.low, made.high))
        if self._done < len(xs):
            first = max(0, frame.column_of(xs[self._done]) - 1) if self._done else 0  # rounding may put it into either
            self._make(xs, ys, frame, first)
            self._done = len(xs)
        return self._columns

    def _make(self, xs: array[float], ys: array[float], frame: Frame, first: int) -> None:
        low, width = frame.low, (frame.high - frame.low) / frame.columns
        start, end = bisect_left(xs, low + first * width), bisect_right(xs, frame.high)
        for index in range(first, frame.columns):
            if start >= end:
                return
            stop = end if index == frame.columns - 1 else min(end, bisect_left(xs, low + (index + 1) * width, start))
            if stop > start:
                self._columns[index] = self._column(ys, start, stop)
            start = stop

    def _column(self, ys: array[float], start: int, stop: int) -> Column:
        """The column of the values from start to stop: of whole blocks their extremes stand for their values."""
        first, last = -(-start // BLOCK), (stop - 1) // BLOCK
        blocks = self._extremes[2 * first : 2 * last]
        made = column(ys[start : BLOCK * first] + blocks + ys[BLOCK * last : stop]) if blocks else None
        return column(ys[start:stop]) if made is None or made.odd else made


# ---- dots -----------------------------------------------------------------------------------------------------------

Range = tuple[int, int]
"""The lowest and the highest dot of a column."""


def ranges(columns: Sequence[Column | None], height: Callable[[float], int]) -> list[Range | None]:
    """The dots of each column, joined to a line. The line breaks at a column without a number, not at an empty one."""
    made: list[Range | None] = [None] * len(columns)
    before: int | None = None
    last = 0
    for index, column in enumerate(columns):
        if column is None:
            continue
        if not column.is_drawn:
            before = None
            continue
        low, high = height(column.low), height(column.high)
        if before is not None:
            near = low if last < low else high if last > high else last
            for between in range(before + 1, index):
                at = last + round((near - last) * (between - before) / (index - before))
                made[between] = (at, at)
        made[index], before, last = (low, high), index, height(column.last)
    # Close the gap between neighbours in the middle.
    for index in range(1, len(made)):
        left, right = made[index - 1], made[index]
        if left is None or right is None:
            continue
        if left[1] + 1 < right[0]:
            middle = (left[1] + right[0]) // 2
            made[index - 1], made[index] = (left[0], middle), (middle + 1, right[1])
        elif right[1] + 1 < left[0]:
            middle = (right[1] + left[0]) // 2
            made[index - 1], made[index] = (middle + 1, left[1]), (right[0], middle)
    return made


DOT_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The dots of a Braille cell: its left and its right column, from bottom to top."""

MASKS = tuple(tuple(tuple(sum(bits[low : high + 1]) for high in range(4)) for low in range(4)) for bits in DOT_BITS)


def braille(found: Sequence[Range | None]) -> Iterator[tuple[int, int, str]]:
    """The cells with dots: row from the bottom, column, character."""
    cells: dict[tuple[int, int], int] = {}
    for index, dots in enumerate(found):
        if dots is None:
            continue
        across, side = divmod(index, 2)
        masks = MASKS[side]
        low, high = dots
        for row in range(low // 4, high // 4 + 1):
            cells[row, across] = cells.get((row, across), 0) | masks[max(0, low - 4 * row)][min(3, high - 4 * row)]
    return ((row, across, chr(0x2800 + bits)) for (row, across), bits in cells.items())


def in_ascii(found: Sequence[Range | None], char: str) -> Iterator[tuple[int, int, str]]:
    """The same with one character per cell."""
    for across, dots in enumerate(found):
        if dots is not None:
            yield from ((row, across, char) for row in range(dots[0], dots[1] + 1))
