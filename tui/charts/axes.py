"""The limits and ticks of axes: round numbers that change only when they must. Pure.

If an axis followed every new point, a chart could not be compared with itself of a minute ago, and each change would
repaint all of it. So limits are rounded outwards. They stay while the data fits, and shrink only when half is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count, dropwhile, takewhile
from typing import NamedTuple

from trainmon.lib import DAY, HOUR, MINUTE
from tui.style import wall_clock

Y_SPARE = 0.5
"""The share of a y axis that may be empty before it shrinks."""

X_SPARE = 0.2
"""The same for an x axis, which moves on with the run."""

Y_PARTS, X_PARTS = 8, 12
"""Limits are rounded to a step that divides the axis into at most this many parts."""

DECADES_FROM = 4.0
"""From this ratio of high to low, a log axis has ticks at 1 2 5 10; below, those of a linear axis."""

LABEL_WIDTH = 7
"""Cells of a label. All charts use the same width, so that their columns are aligned."""

NOTHING = 1e-300
"""Below this, floats have too few digits to divide an axis."""

Tick = tuple[float, str]


class Limits(NamedTuple):
    """The range of an axis."""

    low: float
    high: float


def nice_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def rounded(low: float, high: float, parts: float) -> Limits:
    """Rounded outwards. A flat range is widened on both sides."""
    if high - low <= max(NOTHING, 1e-9 * max(abs(low), abs(high))):
        margin = abs(low) / 10.0 if abs(low) > NOTHING else 1.0
        low, high = low - margin, high + margin
    step = nice_step((high - low) / parts)
    return Limits(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)


def rounded_log(low: float, high: float) -> Limits:
    """Rounded outwards to 1, 2 or 5 times a power of ten; a narrow range is rounded as on a linear axis."""
    if high / low < DECADES_FROM:
        near = rounded(low, high, Y_PARTS)
        return near if near.low > 0 else Limits(low, near.high)
    below = max(value for value in _marks(low / 10.0, low * (1 + 1e-9)) if value > 0)
    return Limits(below, min(_marks(high * (1 - 1e-9), high * 10.0)))


def _marks(low: float, high: float) -> Iterator[float]:
    """1, 2 and 5 times each power of ten within these limits."""
    marks = (
        factor * 10.0**exponent for exponent in count(math.floor(math.log10(low)) - 1) for factor in (1.0, 2.0, 5.0)
    )
    yield from takewhile(lambda mark: mark <= high, dropwhile(lambda mark: mark < low, marks))


def settled(old: Limits | None, low: float, high: float, *, parts: float, spare: float, log: bool = False) -> Limits:
    """The limits for data from low to high: the old ones if they still fit."""
    if old is not None and old.low <= low and high <= old.high:
        used = math.log(high / low) if log else high - low
        whole = math.log(old.high / old.low) if log else old.high - old.low
        if used >= (1.0 - spare) * whole:
            return old
    made = rounded_log(low, high) if log else rounded(low, high, parts)
    is_same = old is not None and all(math.isclose(a, b, abs_tol=1e-12) for a, b in zip(made, old, strict=True))
    return old if old is not None and is_same else made


# ---- ticks ---------------------------------------------------------------------------------------------------------


def ticks(limits: Limits, most: int, *, log: bool = False, cells: int = LABEL_WIDTH) -> list[Tick]:
    """At most `most` round numbers within the limits, with different labels of at most `cells` cells."""
    if log and limits.high / limits.low >= DECADES_FROM:
        return log_ticks(limits, most, cells)
    step = nice_step((limits.high - limits.low) / max(1, most))
    while _number(limits, step) > max(2, most):
        step = nice_step(step * 1.5)
    first = math.ceil(limits.low / step - 1e-9)
    values = [(first + number) * step for number in range(_number(limits, step))]
    largest = max(abs(limits.low), abs(limits.high))
    labels = [label(value, step, largest, cells) for value in values]
    if len(set(labels)) < len(labels):  # a narrow range: the lowest value, then what each tick adds to it
        texts = (f"{values[0]:.{digits}g}".replace("e+0", "e").replace("e-0", "e-") for digits in range(cells, 0, -1))
        labels = [next(text for text in texts if len(text) <= cells)]
        labels += [f"+{label(place * step, step, place * step, cells - 1)}" for place in range(1, len(values))]
    marks = dict(zip(reversed(labels), reversed(values), strict=True))  # of equal labels, the first
    return [(marks[text], text) for text in dict.fromkeys(labels)]


def _number(limits: Limits, step: float) -> int:
    return math.floor(limits.high / step + 1e-9) - math.ceil(limits.low / step - 1e-9) + 1


def log_ticks(limits: Limits, most: int, cells: int) -> list[Tick]:
    """1 2 5 10 if they fit, else powers of ten, else some of these."""
    marks = list(_marks(limits.low * (1 - 1e-9), limits.high * (1 + 1e-9)))
    if len(marks) > most:
        tens = [mark for mark in marks if abs(math.log10(mark) - round(math.log10(mark))) < 1e-9]
        marks = tens[:: math.ceil(len(tens) / max(1, most))] if len(tens) > 1 else [marks[0], marks[-1]]
    return [(mark, label(mark, mark, mark, cells)) for mark in marks]


UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""(smallest value, unit, suffix)."""


def label(value: float, step: float, largest: float, most: int) -> str:
    """A tick with enough digits to differ from the next: 2.25, 12.5k, 5e-05. At most `most` cells."""
    if value == 0:
        return "0"
    unit, name = next(((unit, name) for start, unit, name in UNITS if largest >= start), (1.0, ""))
    for text in (f"{value / unit:.{_digits(step / unit)}f}{name}", f"{value:.{_digits(step)}f}"):
        if len(text) <= most and (largest >= 0.1 or _digits(step) < 5):
            return text
    for digits in range(max(0, _digits(step) - _digits(abs(value))), -1, -1):
        text = f"{value:.{digits}e}".replace("e-0", "e-").replace("e+0", "e")
        if len(text) <= most:
            break
    return text[:most]


def _digits(step: float) -> int:
    """Decimals that numbers with this distance need."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


# ---- time ----------------------------------------------------------------------------------------------------------

CLOCK_STEPS = (
    1.0, 5.0, 15.0, 30.0, MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR,
    12 * HOUR, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 30 * DAY, 60 * DAY, 180 * DAY, 365 * DAY,
)  # fmt: skip


def settled_times(old: Limits | None, low: float, high: float) -> Limits:
    """Like `settled`, with round times."""
    if old is not None and old.low <= low and high <= old.high and high - low >= (1 - X_SPARE) * (old.high - old.low):
        return old
    step = next((step for step in CLOCK_STEPS if max(high - low, 1.0) / step <= X_PARTS), CLOCK_STEPS[-1])
    begin, end = math.floor(low / step) * step, math.ceil(high / step) * step
    return Limits(begin, end if end > begin else begin + step)


def clock_ticks(limits: Limits, most: int) -> list[Tick]:
    """`14:05`; midnight shows the date, `21 Nov`. In the zone of the header, as are whole hours and days."""
    offset = wall_clock(limits.low).utcoffset()
    shift = 0.0 if offset is None else offset.total_seconds()
    span = limits.high - limits.low
    step = next((step for step in CLOCK_STEPS if limits.high // step + limits.low // -step < most), span)
    first = math.ceil((limits.low + shift) / step) * step - shift
    return [(at, clock(at, step)) for at in (first + number * step for number in range(most)) if at <= limits.high]


def clock(at: float, step: float) -> str:
    when = wall_clock(at)
    if (when.hour, when.minute, when.second) == (0, 0, 0):
        return f"{when:%d %b}"
    return f"{when:%H:%M:%S}" if step < MINUTE else f"{when:%H:%M}"
