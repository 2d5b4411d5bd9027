"""A curve as the columns of a screen: of the points of each, the lowest, the highest and the last. Pure.

100,000 points are drawn from 200 columns. Nothing that a screen can show is lost by it: a spike of one point is the
highest of its column. A curve that only grew changes its last columns, and only these are made again.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

NAN, UP, DOWN = 1, 2, 4
"""What a column holds beside numbers: nan, inf, -inf."""


class Column(NamedTuple):
    """The points of one column; the three are nan where it has no finite one."""

    low: float
    high: float
    last: float
    odd: int = 0

    @property
    def is_drawn(self) -> bool:
        return self.low == self.low


class Frame(NamedTuple):
    """The part of an x axis that is shown, in so many columns."""

    low: float
    high: float
    columns: int

    def place(self, x: float) -> int:
        """The column of an x within the frame."""
        share = (x - self.low) / (self.high - self.low)
        return min(self.columns - 1, max(0, int(share * self.columns)))

    def __contains__(self, x: object) -> bool:
        return isinstance(x, float) and self.low <= x <= self.high


def column(values: array[float]) -> Column:
    """One column of at least one point. The sum tells in one pass whether all are finite: they nearly always are."""
    total = sum(values)
    if total - total == 0.0:
        return Column(min(values), max(values), values[-1])
    finite = [value for value in values if math.isfinite(value)]
    odd = (
        (NAN if any(value != value for value in values) else 0)
        | (UP if math.inf in values else 0)
        | (DOWN if -math.inf in values else 0)
    )
    return Column(min(finite), max(finite), finite[-1], odd) if finite else Column(math.nan, math.nan, math.nan, odd)


class Columns:
    """The columns of one curve in one frame, kept while it grows."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] = ()
        self._seen = 0
        self._columns: list[Column | None] = []

    def of(self, xs: array[float], ys: array[float], frame: Frame, version: object) -> list[Column | None]:
        """`version` is another one when points of the curve changed that were there before."""
        made_of = (frame, version)
        if made_of != self._made_of or len(xs) < self._seen:
            self._made_of, self._seen, self._columns = made_of, 0, [None] * frame.columns
        if self._seen < len(xs):
            first = max(0, frame.place(xs[self._seen]) - 1) if self._seen else 0  # a rounding may fall either way
            self._make(xs, ys, frame, first)
            self._seen = len(xs)
        return self._columns

    def _make(self, xs: array[float], ys: array[float], frame: Frame, first: int) -> None:
        low, width = frame.low, (frame.high - frame.low) / frame.columns
        start, end = bisect_left(xs, low + first * width), bisect_right(xs, frame.high)
        for place in range(first, frame.columns):
            if start >= end:
                return
            is_last = place == frame.columns - 1
            stop = end if is_last else min(end, bisect_left(xs, low + (place + 1) * width, start))
            if stop > start:
                self._columns[place] = column(ys[start:stop])
            start = stop
