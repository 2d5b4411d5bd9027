"""How the settings of a rule are written in the config: from the types that the rule's struct gives them."""

from __future__ import annotations

import datetime as dt
import re
import types
import typing
from typing import Annotated, Literal

from trainmon.config.types import (
    Kind,
    Wrong,
    one_of,
    quoted,
    read_duration,
    read_flag,
    read_text,
    read_texts,
    shown,
    toml,
    whole_number,
    write_duration,
    write_share,
)
from trainmon.lib import Instant, Seconds

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGTP]i?)?B")
PREFIXES = " kMGTP"
ZERO = re.compile(r"0+(?:ms|s|m|h|d|w)?")
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
NEVER: Seconds = 0.0
"""What "never" is in seconds, where a setting may be that."""


def read_hold(value: object) -> Seconds:
    """A duration that may be none at all."""
    return 0.0 if isinstance(value, str) and ZERO.fullmatch(value.strip()) else read_duration(value)


def read_longest(value: object) -> Seconds:
    """A duration, or "never"."""
    if value == "never":
        return NEVER
    try:
        return read_duration(value)
    except Wrong as wrong:
        raise Wrong(f'{wrong}; or "never"') from wrong


def read_part(value: object) -> float:
    """A share from none to all."""
    match = PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise Wrong(f'must be a share from "0%" to "100%", not {shown(value)}')
    return float(match[1]) / 100


def read_size(value: object) -> int:
    """`50GB`, `1.5TiB` in bytes."""
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise Wrong(f'must be a size such as "50GB" or "1.5TiB", not {shown(value)}')
    prefix = match[2] or " "
    base = 1024.0 if prefix.endswith("i") else 1000.0
    return round(float(match[1]) * base ** PREFIXES.index(prefix[0]))


def write_longest(seconds: Seconds) -> str:
    return toml("never") if seconds == NEVER else write_duration(seconds)


def write_size(size: int) -> str:
    """Bytes as the config writes them: 50000000000 is `50GB`."""
    for power in range(5, 0, -1):
        for unit, base in ((f"{PREFIXES[power]}B", 1000), (f"{PREFIXES[power]}iB", 1024)):
            if size and size % base**power == 0:
                return toml(f"{size // base**power}{unit}")
    return toml(f"{size}B")


def read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"must be a number, not {shown(value)}")
    if not abs(value) < 1e300:  # inf and nan are numbers in TOML
        raise Wrong(f"must be a number that can be compared, not {shown(value)}")
    return float(value)


def read_whole_numbers(value: object) -> list[int]:
    if not isinstance(value, list) or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise Wrong(f"must be a list of whole numbers such as [48, 79], not {shown(value)}")
    return value


NAMED = {
    "duration": Kind('a duration: "0s", "30s", "5m", "1h30m"', read_hold, write_duration),
    "share": Kind('a share: "80%"', read_part, write_share),
    "size": Kind('a size: "50GB", "1.5TiB"', read_size, write_size),
}
"""By the word that a rule's field is annotated with."""

PLAIN: dict[object, Kind] = {
    bool: Kind("true or false", read_flag),
    int: Kind("a whole number", whole_number(0)),
    float: Kind("a number", read_number),
    str: Kind("text", read_text),
    tuple[str, ...]: Kind("a list of texts", read_texts),
    tuple[int, ...]: Kind("a list of whole numbers", read_whole_numbers),
}

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def read_moment(value: object) -> Instant:
    """A date and time of TOML; without an offset it is this machine's own."""
    if not isinstance(value, dt.datetime):
        raise Wrong(f"must be a date and time without quotes such as 2031-05-01T08:00:00, not {shown(value)}")
    return value.timestamp()


def read_time_of_day(value: object) -> tuple[int, int]:
    match = TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Wrong(f'must be a time of day such as "08:30", not {shown(value)}')
    return int(match[1]), int(match[2])


def read_days(value: object) -> list[int]:
    """Days of the week as numbers, Monday's is 0."""
    days = read_texts(value)
    for day in days:
        if day not in DAYS:
            raise Wrong(f'has "{quoted(day)[1:-1]}"; the days are {", ".join(DAYS)}')
    return [DAYS.index(day) for day in days]


Moment = Annotated[Instant, Kind("a date and time: 2031-05-01T08:00:00+02:00", read_moment)]
TimeOfDay = Annotated[tuple[int, int], Kind('a time of day: "08:30"', read_time_of_day)]
Days = Annotated[tuple[int, ...], Kind('days: ["tue", "sat"]', read_days)]
Longest = Annotated[Seconds, Kind('a duration, or "never"', read_longest, write_longest)]


def kind_of(type_: object) -> Kind:
    """How a field of this type is written."""
    for word in getattr(type_, "__metadata__", ()):
        if isinstance(word, str) and word in NAMED:
            return NAMED[word]
    origin = typing.get_origin(type_)
    if origin is Annotated:
        return kind_of(typing.get_args(type_)[0])
    if origin in (typing.Union, types.UnionType):
        return kind_of(next(part for part in typing.get_args(type_) if part is not type(None)))
    if origin is Literal:
        return one_of(*typing.get_args(type_))
    if type_ not in PLAIN:
        raise TypeError(f"a rule's setting of type {type_} cannot be written in a config")
    return PLAIN[type_]
