"""Puts the lines of a log in the order of their clocks: a rank may write late what it saw first. Pure.

A line stays behind the steps that stand above it in its file: a clock that goes back (a restart on another node, a
correction, a rank with another clock) is no proof that the run made these steps after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter

from trainmon.analysis.causes.lines import Line
from trainmon.analysis.causes.signs import shows_step
from trainmon.lib import Seconds

STAMP = re.compile(
    r"(?:(?P<date>\d{4}([-/.])\d\d\2\d\d|\d{8}|(?<=[IWEF])\d{4}|\d\d[-/]\d\d(?:[-/]\d{2,4})?"
    r"|[A-Z][a-z]{2} [ \d]\d|\d\d [A-Z][a-z]{2})(?: \d{4})?[T ,_-]{1,2})?"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)(?P<zone>Z| ?[+-]\d\d:?\d\d| UTC)?"
)
NATIVE = re.compile(r"\[?[IWEF]\d{4,8} (?=\d\d:)")
"""PyTorch's C++ code puts its level and the date in front: `[E1122 10:15:00.1 ProcessGroupNCCL.cpp:629]`."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAY: Seconds = 86_400.0
YEAR: Seconds = 366 * DAY
NEW_YEAR: Seconds = 31 * DAY
"""A date that is so much later is of the next year."""
LATE: Seconds = 3_600.0
"""The longest time that a rank keeps its lines: it waits for a collective operation, for which PyTorch allows 600 s and
some runs half an hour. A clock that is further back is of another time zone, and is not compared."""
NEAR = 30
"""Lines of other ranks between two lines of a rank that were written together."""
UNKNOWN = float("inf")
"""The time of lines in a file without times: they stay behind those of other files."""


def in_order(lines: Iterable[Line]) -> Sequence[Line]:
    """The lines by their clocks, and as they stand where these are equal or missing."""
    by_file: dict[str | None, list[Line]] = {}
    for line in lines:
        by_file.setdefault(line.file, []).append(line)
    timed = [(at, line) for own in by_file.values() for at, line in zip(_times(own), own, strict=True)]
    if any(one[0] > other[0] for one, other in pairwise(timed)):
        timed.sort(key=itemgetter(0))
    return [line for _, line in timed]


def _times(lines: Sequence[Line]) -> Sequence[Seconds]:
    """When each line of one file was written. Without a time it has that of the line above, of its own rank if near."""
    times: list[Seconds] = []
    by_rank: dict[str | None, tuple[int, Seconds]] = {}
    newest, last_step, zoned = -UNKNOWN, -UNKNOWN, None
    for index, line in enumerate(lines):
        above, at = by_rank.get(line.rank, (-NEAR, -UNKNOWN))
        if index - above >= NEAR:
            at = times[-1] if times else -UNKNOWN
        if (stamp := _stamp(line)) is not None and zoned in (None, stamp["zone"] is not None):
            found = _seconds(stamp, newest)
            if found is not None:
                at, newest, zoned = found, max(newest, found), stamp["zone"] is not None
        at = max(at, last_step)
        last_step = at if shows_step(line.shape) else last_step
        times.append(at)
        by_rank[line.rank] = index, at
    return times if newest > -UNKNOWN else [UNKNOWN] * len(times)


def _stamp(line: Line) -> re.Match[str] | None:
    """The time in front of a line."""
    if ":" in line.head and (found := STAMP.search(line.head)) is not None:
        return found
    native = NATIVE.match(line.text)
    return None if native is None else STAMP.search(line.text, 0, native.end() + 20)


def _seconds(stamp: re.Match[str], newest: Seconds) -> Seconds | None:
    """A time, in seconds from a day in the past; null if it does not follow the newest one before it."""
    day = None if stamp["date"] is None else _day(stamp["date"])
    at = int(stamp["hour"]) * 3_600 + int(stamp["minute"]) * 60 + float(stamp["second"].replace(",", "."))
    if (zone := stamp["zone"]) and zone[-1].isdigit():
        at -= (int(zone[-2:]) * 60 + int(zone.replace(":", "").strip()[1:3]) * 3_600) * (-1 if "-" in zone else 1)
    if newest == -UNKNOWN:
        return at + DAY * (day or 0)
    if day is not None:
        at += DAY * day
        is_next_year = at < newest - LATE and at + YEAR < newest + NEW_YEAR
        at += YEAR if is_next_year else 0.0
        return at if at >= newest - LATE else None
    at += newest // DAY * DAY
    return at + (DAY if at < newest - LATE else -DAY if at > newest + DAY - LATE else 0.0)


@lru_cache(maxsize=64)
def _day(text: str) -> int | None:
    """The day of a year. The year itself does not count: many formats lack it."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if text[-3:] in MONTHS or text[:3] in MONTHS:
        month, day = 1 + MONTHS.index(text[:3] if text[:3] in MONTHS else text[-3:]), numbers[0]
    elif len(numbers) == 1:
        month, day = divmod(numbers[0] % 10_000, 100)
    else:
        month, day = numbers[-2:] if numbers[0] > 99 else numbers[:2]
    try:
        return date(2000, month, day).toordinal()
    except ValueError:  # the day stands first
        return date(2000, day, month).toordinal() if 0 < day <= 12 and 0 < month <= 31 else None
