"""How the settings of a rule are written in the config: from the types that the rule's struct gives them."""

from __future__ import annotations

import datetime as dt
import re
import types
import typing
from typing import Annotated, Literal

from trainmon.config.types import (
    InvalidValue,
    ValueType,
    describe,
    format_duration,
    format_share,
    one_of,
    parse_duration,
    parse_flag,
    parse_text,
    parse_texts,
    parse_whole_number,
    quoted,
    toml,
)
from trainmon.lib import Instant, Seconds

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGTP]i?)?B")
PREFIXES = " kMGTP"
ZERO = re.compile(r"0+(?:ms|s|m|h|d|w)?")
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
NEVER: Seconds = 0.0
"""What "never" is in seconds, where a setting may be that."""


def parse_optional_duration(value: object) -> Seconds:
    """A duration that may be none at all."""
    return 0.0 if isinstance(value, str) and ZERO.fullmatch(value.strip()) else parse_duration(value)


def parse_duration_or_never(value: object) -> Seconds:
    """A duration, or "never"."""
    if value == "never":
        return NEVER
    try:
        return parse_duration(value)
    except InvalidValue as wrong:
        raise InvalidValue(f'{wrong}; or "never"') from wrong


def parse_part(value: object) -> float:
    """A share from none to all."""
    match = PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise InvalidValue(f'must be a share from "0%" to "100%", not {describe(value)}')
    return float(match[1]) / 100


def parse_size(value: object) -> int:
    """`50GB`, `1.5TiB` in bytes."""
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f'must be a size such as "50GB" or "1.5TiB", not {describe(value)}')
    prefix = match[2] or " "
    base = 1024.0 if prefix.endswith("i") else 1000.0
    return round(float(match[1]) * base ** PREFIXES.index(prefix[0]))


def format_duration_or_never(seconds: Seconds) -> str:
    return toml("never") if seconds == NEVER else format_duration(seconds)


def format_size(size: int) -> str:
    """Bytes as the config writes them: 50000000000 is `50GB`."""
    for power in range(5, 0, -1):
        for unit, base in ((f"{PREFIXES[power]}B", 1000), (f"{PREFIXES[power]}iB", 1024)):
            if size and size % base**power == 0:
                return toml(f"{size // base**power}{unit}")
    return toml(f"{size}B")


def parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"must be a number, not {describe(value)}")
    if not abs(value) < 1e300:  # inf and nan are numbers in TOML
        raise InvalidValue(f"must be a number that can be compared, not {describe(value)}")
    return float(value)


def parse_whole_numbers(value: object) -> list[int]:
    if not isinstance(value, list) or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise InvalidValue(f"must be a list of whole numbers such as [48, 79], not {describe(value)}")
    return value


NAMED = {
    "duration": ValueType('a duration: "0s", "30s", "5m", "1h30m"', parse_optional_duration, format_duration),
    "share": ValueType('a share: "80%"', parse_part, format_share),
    "size": ValueType('a size: "50GB", "1.5TiB"', parse_size, format_size),
}
"""By the word that a rule's field is annotated with."""

PLAIN: dict[object, ValueType] = {
    bool: ValueType("true or false", parse_flag),
    int: ValueType("a whole number", parse_whole_number(0)),
    float: ValueType("a number", parse_number),
    str: ValueType("text", parse_text),
    tuple[str, ...]: ValueType("a list of texts", parse_texts),
    tuple[int, ...]: ValueType("a list of whole numbers", parse_whole_numbers),
}

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def parse_datetime(value: object) -> Instant:
    """A date and time of TOML; without an offset it is this machine's own."""
    if not isinstance(value, dt.datetime):
        raise InvalidValue(f"must be a date and time without quotes such as 2031-05-01T08:00:00, not {describe(value)}")
    return value.timestamp()


def parse_time_of_day(value: object) -> tuple[int, int]:
    match = TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f'must be a time of day such as "08:30", not {describe(value)}')
    return int(match[1]), int(match[2])


def parse_days(value: object) -> list[int]:
    """Days of the week as numbers, Monday's is 0."""
    days = parse_texts(value)
    for day in days:
        if day not in DAYS:
            raise InvalidValue(f'has "{quoted(day)[1:-1]}"; the days are {", ".join(DAYS)}')
    return [DAYS.index(day) for day in days]


Moment = Annotated[Instant, ValueType("a date and time: 2031-05-01T08:00:00+02:00", parse_datetime)]
TimeOfDay = Annotated[tuple[int, int], ValueType('a time of day: "08:30"', parse_time_of_day)]
Days = Annotated[tuple[int, ...], ValueType('days: ["tue", "sat"]', parse_days)]
DurationOrNever = Annotated[
    Seconds, ValueType('a duration, or "never"', parse_duration_or_never, format_duration_or_never)
]


def kind_of(type_: object) -> ValueType:
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
