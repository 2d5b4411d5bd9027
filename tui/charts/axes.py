"""The limits and ticks of axes: round numbers, which move only when they must. Pure.

A chart whose axis follows every new point cannot be compared with itself of a minute ago, and each move paints all of
it again. So limits are rounded outwards, stay while the data is within them, and close in only when half is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, dropwhile, takewhile
from typing import NamedTuple

ROOM_LEFT = 0.5
"""Values may leave this share of their axis empty before it closes in."""

ROOM_BEFORE = 0.2
"""Of steps or times, which run along: less."""

Y_PARTS, X_PARTS = 8, 12
"""Into how many round parts at most an axis is cut, to round its limits to them."""

DECADES_FROM = 4.0
"""From this ratio of high to low on, a log axis is marked 1 2 5 10; below it, it needs marks as a linear one."""

LABEL_AT_MOST = 7
"""Cells; the labels of all charts take as many, so that their columns stand over each other."""

NOTHING = 1e-300
"""Below this, numbers have no more digits to part an axis by."""

Tick = tuple[float, str]


class Limits(NamedTuple):
    """What an axis shows, from low to high."""

    low: float
    high: float


def nice_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def rounded(low: float, high: float, parts: float) -> Limits:
    """Outwards to round numbers. What is flat gets room on both sides."""
    if high - low <= max(NOTHING, 1e-9 * max(abs(low), abs(high))):
        room = abs(low) / 10.0 if abs(low) > NOTHING else 1.0
        low, high = low - room, high + room
    step = nice_step((high - low) / parts)
    return Limits(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)


def rounded_log(low: float, high: float) -> Limits:
    """Outwards to 1, 2 or 5 times a power of ten; of values close to each other, as on a linear axis."""
    if high / low < DECADES_FROM:
        near = rounded(low, high, Y_PARTS)
        return near if near.low > 0 else Limits(low, near.high)
    below = max(value for value in _marks(low / 10.0, low * (1 + 1e-9)) if value > 0)
    return Limits(below, min(_marks(high * (1 - 1e-9), high * 10.0)))


def _marks(low: float, high: float) -> Iterator[float]:
    """1, 2 and 5 times each power of ten in these limits."""
    marks = (
        factor * 10.0**exponent for exponent in count(math.floor(math.log10(low)) - 1) for factor in (1.0, 2.0, 5.0)
    )
    yield from takewhile(lambda mark: mark <= high, dropwhile(lambda mark: mark < low, marks))


def settled(old: Limits | None, low: float, high: float, *, parts: float, room: float, log: bool = False) -> Limits:
    """The limits for data from low to high: the old ones while they fit."""
    if old is not None and old.low <= low and high <= old.high:
        used = math.log(high / low) if log else high - low
        whole = math.log(old.high / old.low) if log else old.high - old.low
        if used >= (1.0 - room) * whole:
            return old
    made = rounded_log(low, high) if log else rounded(low, high, parts)
    is_same = old is not None and all(math.isclose(a, b, abs_tol=1e-12) for a, b in zip(made, old, strict=True))
    return old if old is not None and is_same else made


# ---- ticks ---------------------------------------------------------------------------------------------------------


def ticks(limits: Limits, most: int, *, log: bool = False, cells: int = LABEL_AT_MOST) -> list[Tick]:
    """Round numbers within the limits, at most so many, with their labels of so many cells."""
    if log and limits.high / limits.low >= DECADES_FROM:
        return log_ticks(limits, most, cells)
    step = nice_step((limits.high - limits.low) / max(1, most))
    while _number(limits, step) > max(2, most):
        step = nice_step(step * 1.5)
    first = math.ceil(limits.low / step - 1e-9)
    values = [(first + place) * step for place in range(_number(limits, step))]
    largest = max(abs(limits.low), abs(limits.high))
    return [(value, label(value, step, largest, cells)) for value in values]


def _number(limits: Limits, step: float) -> int:
    return math.floor(limits.high / step + 1e-9) - math.ceil(limits.low / step - 1e-9) + 1


def log_ticks(limits: Limits, most: int, cells: int) -> list[Tick]:
    """1 2 5 10 while there is room, else powers of ten, else some of them."""
    marks = list(_marks(limits.low * (1 - 1e-9), limits.high * (1 + 1e-9)))
    if len(marks) > most:
        tens = [mark for mark in marks if abs(math.log10(mark) - round(math.log10(mark))) < 1e-9]
        every = math.ceil(len(tens) / max(1, most))
        marks = tens[::every] if len(tens) > 1 else [marks[0], marks[-1]]
    return [(mark, label(mark, mark, mark, cells)) for mark in marks]


UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""From which value on, which unit."""


def label(value: float, step: float, largest: float, most: int) -> str:
    """A tick with as many digits as tell it from the next: 2.25, 12.5k, 5e-05. At most so many cells."""
    if value == 0:
        return "0"
    unit, name = next(((unit, name) for start, unit, name in UNITS if largest >= start), (1.0, ""))
    text, digits = "", _digits(step / unit)
    if digits < 5:
        for text in (f"{value / unit:.{digits}f}{name}", f"{value:.{_digits(step)}f}"):
            if len(text) <= most:
                return text
    for digits in range(max(0, _digits(step) - _digits(abs(value))), -1, -1):
        text = f"{value:.{digits}e}".replace("e-0", "e-").replace("e+0", "e")
        if len(text) <= most:
            break
    return text[:most]


def _digits(step: float) -> int:
    """Behind the point, that numbers so far apart need."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


# ---- time ----------------------------------------------------------------------------------------------------------

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

CLOCK_STEPS = (
    1.0, 5.0, 15.0, 30.0, MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR,
    12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 30 * DAY, 60 * DAY, 180 * DAY, 365 * DAY,
)  # fmt: skip


def settled_times(old: Limits | None, low: float, high: float) -> Limits:
    """As `settled`, to round times."""
    if (
        old is not None
        and old.low <= low
        and high <= old.high
        and high - low >= (1 - ROOM_BEFORE) * (old.high - old.low)
    ):
        return old
    step = next((step for step in CLOCK_STEPS if max(high - low, 1.0) / step <= X_PARTS), CLOCK_STEPS[-1])
    begin, end = math.floor(low / step) * step, math.ceil(high / step) * step
    return Limits(begin, end if end > begin else begin + step)


def clock_ticks(limits: Limits, most: int) -> list[Tick]:
    """`14:05`; a midnight is its date, `21 Nov`. UTC."""
    span = limits.high - limits.low
    step = next((step for step in CLOCK_STEPS if limits.high // step + limits.low // -step < most), span)
    first = math.ceil(limits.low / step) * step
    return [(at, clock(at, step)) for at in (first + place * step for place in range(most)) if at <= limits.high]


def clock(at: float, step: float) -> str:
    when = datetime.fromtimestamp(at, UTC)
    if at % DAY == 0:
        return f"{when:%d %b}"
    return f"{when:%H:%M:%S}" if step < MINUTE else f"{when:%H:%M}"
