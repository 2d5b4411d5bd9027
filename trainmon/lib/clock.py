"""Time as an argument: loops take a Clock, pure functions take an Instant; dictionaries of groups and of the newest."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

# ---- time as an argument ---------------------------------------------------------------------------------------------

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

Instant = float
"""Unix seconds (UTC)."""

Seconds = float

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
"""In seconds."""

DURATION_UNITS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
"""The units of a duration, in seconds."""


class Clock(Protocol):
    """The source of time for loops. Tests advance their own clock."""

    def now(self) -> Instant: ...

    def monotonic(self) -> Seconds: ...


def clock_difference(theirs: Instant, since: Instant, until: Instant, known: Seconds = 0.0) -> Seconds:
    """Their clock minus ours, as close to the known difference as possible: they have read `theirs` between these two
    times of ours, such as those of a question and of its answer."""
    return min(max(known, theirs - until), theirs - since)


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        return time.time()

    def monotonic(self) -> Seconds:
        return time.monotonic()


# ---- dictionaries ----------------------------------------------------------------------------------------------------


def group_by(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """The values by their key. Keys, and the values of each, are in the order in which they come."""
    return by_key((key(value), value) for value in values)


def by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of pairs by their key, in the same order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def drop_oldest(kept: dict[Any, Any], limit: int) -> None:
    """Drop what was added first until no more than `limit` are left."""
    while len(kept) > limit:
        del kept[next(iter(kept))]
