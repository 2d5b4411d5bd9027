"""Reduces a curve to screen columns (the lowest, highest and last value of each), and columns to dots. Pure.

100,000 points become 200 columns. No visible detail is lost: a spike of one point is the highest value of its column.
When a curve grows, only its last columns are computed again. For another window, blocks of 32 points are used instead
of points, which takes a fifth of the time.

A cell of Braille has 2 by 4 dots; in ASCII a cell is one dot. plotext takes 5 to 40 ms to draw one curve of 300
columns, and draws all of it again for one more point. With three attempts and eight charts, each key took half a
second. Dots from columns take half a millisecond.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

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
        share = (x - self.low) / (self.high - self.low)
        return min(self.columns - 1, max(0, int(share * self.columns)))

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


BLOCK = 32


class Blocks:
    """The lowest and the highest of each 32 values of a growing curve; nan if one of them is not finite."""

    def __init__(self) -> None:
        self._lows, self._highs = array("d"), array("d")

    def follow(self, values: array[float]) -> None:
        lows, highs = self._lows.append, self._highs.append
        for start in range(BLOCK * len(self._lows), len(values) - BLOCK + 1, BLOCK):
            made = column(values[start : start + BLOCK])
            lows(math.nan if made.odd else made.low)
            highs(math.nan if made.odd else made.high)

    def column(self, values: array[float], start: int, stop: int) -> Column:
        """The column of the values from start to stop."""
        first, last = -(-start // BLOCK), min(stop // BLOCK, len(self._lows))
        if last - first < 2:
            return column(values[start:stop])
        lows, highs = self._lows[first:last], self._highs[first:last]
        head, tail = values[start : BLOCK * first], values[BLOCK * last : stop]
        total = sum(lows) + sum(head) + sum(tail)
        if not -FAR < total < FAR:
            return column(values[start:stop])
        low = min(min(lows), min(head, default=math.inf), min(tail, default=math.inf))
        high = max(max(highs), max(head, default=-math.inf), max(tail, default=-math.inf))
        return Column(low, high, values[stop - 1])


class Columns:
    """The columns of one curve in one frame, updated while the curve grows."""

    def __init__(self) -> None:
        self._frame: tuple[Frame, bool] | None = None
        self._version: object = None
        self._done = 0
        self._columns: list[Column | None] = []
        self._blocks = Blocks()

    def of(
        self, xs: array[float], ys: array[float], frame: Frame, version: object, *, along: bool = False
    ) -> list[Column | None]:
        """The columns. `version` changes when old points changed; `along`: x is the time."""
        if version != self._version:
            self._version, self._frame, self._blocks = version, None, Blocks()
        if (frame, along) != self._frame:
            self._frame, self._done, self._columns = (frame, along), 0, [None] * frame.columns
        self._blocks.follow(ys)
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
            is_last = index == frame.columns - 1
            stop = end if is_last else min(end, bisect_left(xs, low + (index + 1) * width, start))
            if stop > start:
                self._columns[index] = self._blocks.column(ys, start, stop)
            start = stop


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
