"""Durations, shares, sizes, dates and addresses in the config."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable
from typing import Annotated

from trainmon.config.types import InvalidValue, ValueType, describe, parse_path, parse_texts, quoted, toml
from trainmon.lib import Instant, Seconds

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
ZERO = re.compile(r"0+(?:ms|s|m|h|d|w)?")
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGTP]i?)?B")
PREFIXES = " kMGTP"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
LISTEN = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):)?(?P<port>\d{1,5})")
LOOPBACK = "127.0.0.1"
NEVER: Seconds = 0.0
"""The value of "never" in seconds."""

SHORTEST_PERIOD: Seconds = 15.0
"""The shortest polling period of Slurm and W&B."""


def parse_duration(value: object) -> Seconds:
    """`2s`, `15m`, `1h30m`, `90d` in seconds. A bare number is refused, because its unit is not obvious.

    Raises:
        InvalidValue: when it is not a duration, or out of range.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidValue(f'needs a unit: "{value:g}s" or "{value:g}m", not the bare number {value:g}')
    if not isinstance(value, str) or not DURATION.fullmatch(value.replace(" ", "")):
        raise InvalidValue(f'must be a duration such as "2s", "15m" or "1h30m", not {describe(value)}')
    seconds = sum(float(number) * UNITS[unit] for number, unit in DURATION_PART.findall(value.replace(" ", "")))
    if not 0.1 <= seconds <= 100 * 366 * UNITS["d"]:
        raise InvalidValue(f'must be between "100ms" and a hundred years, not {describe(value)}')
    return float(seconds)


def parse_duration_or_zero(value: object) -> Seconds:
    """Like `parse_duration`; `0s` is allowed.

    Raises:
        InvalidValue: when it is not a duration, or out of range.
    """
    return 0.0 if isinstance(value, str) and ZERO.fullmatch(value.strip()) else parse_duration(value)


def parse_duration_or_never(value: object) -> Seconds:
    """Like `parse_duration`; `never` is 0.

    Raises:
        InvalidValue: when it is neither.
    """
    if value == "never":
        return NEVER
    try:
        return parse_duration(value)
    except InvalidValue as wrong:
        raise InvalidValue(f'{wrong}; or "never"') from wrong


def polling_period(reason: str, shortest: Seconds = SHORTEST_PERIOD) -> ValueType:
    """The type of a polling period that must not be too short, for a reason that the message gives."""

    def parse(value: object) -> Seconds:
        seconds = parse_duration(value)
        if seconds < shortest:
            raise InvalidValue(f'must be "{shortest:g}s" or more, not {describe(value)}: {reason}')
        return seconds

    return ValueType(f'a duration from "{shortest:g}s"', parse, format_duration)


def duration_text(seconds: Seconds) -> str:
    """Seconds as the config writes them: 5400 is `1h30m`."""
    parts = []
    left = round(seconds * 1000)
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(UNITS[unit] * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_duration(seconds: Seconds) -> str:
    return toml(duration_text(seconds))


def share_parser(example: str, limits: str, *, may_be_zero: bool) -> Callable[[object], float]:
    """A parser of shares up to 100%."""

    def parse(value: object) -> float:
        match = PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise InvalidValue(f"must be a share {example}, not {describe(value)}")
        share = float(match[1]) / 100
        if share > 1 or not (share or may_be_zero):
            raise InvalidValue(f"must be {limits}, not {describe(value)}")
        return share

    return parse


parse_share = share_parser('such as "80%"', 'more than "0%" and at most "100%"', may_be_zero=False)


def format_share(share: float) -> str:
    return toml(f"{share * 100:g}%")


def parse_size(value: object) -> int:
    """`50GB`, `1.5TiB` in bytes.

    Raises:
        InvalidValue: when it is not a size.
    """
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f'must be a size such as "50GB" or "1.5TiB", not {describe(value)}')
    prefix = match[2] or " "
    base = 1024.0 if prefix.endswith("i") else 1000.0
    return round(float(match[1]) * base ** PREFIXES.index(prefix[0]))


def format_size(size: int) -> str:
    """Bytes as the config writes them: 50000000000 is `50GB`."""
    for power in range(5, 0, -1):
        for unit, base in ((f"{PREFIXES[power]}B", 1000), (f"{PREFIXES[power]}iB", 1024)):
            if size and size % base**power == 0:
                return toml(f"{size // base**power}{unit}")
    return toml(f"{size}B")


def parse_datetime(value: object) -> Instant:
    """A TOML date and time. Without an offset it is local time.

    Raises:
        InvalidValue: when it is not a date and time.
    """
    if not isinstance(value, dt.datetime):
        raise InvalidValue(f"must be a date and time without quotes such as 2031-05-01T08:00:00, not {describe(value)}")
    return value.timestamp()


def parse_time_of_day(value: object) -> tuple[int, int]:
    """`08:30` as hours and minutes.

    Raises:
        InvalidValue: when it is not a time of day.
    """
    match = TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(f'must be a time of day such as "08:30", not {describe(value)}')
    return int(match[1]), int(match[2])


def parse_days(value: object) -> list[int]:
    """Days of the week as numbers; Monday is 0.

    Raises:
        InvalidValue: when it is not a list of days.
    """
    days = parse_texts(value)
    for day in days:
        if day not in DAYS:
            raise InvalidValue(f'has "{quoted(day)[1:-1]}"; the days are {", ".join(DAYS)}')
    return [DAYS.index(day) for day in days]


def parse_listen_address(value: object) -> tuple[str, int]:
    """`127.0.0.1:9464` as an IP address and a port. A port alone is on the loopback address.

    Raises:
        InvalidValue: when it is not such an address.
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = LISTEN.fullmatch(text) if isinstance(text, str) else None
    host = (match["host"] or LOOPBACK).strip("[]").replace("localhost", LOOPBACK) if match else ""
    try:
        port = int(match["port"]) if match else 0
        if 1 <= port <= 65_535:
            return str(ipaddress.ip_address(host)), port
    except ValueError:
        pass
    expected = 'a port such as 9464, or an IP address and a port such as "127.0.0.1:9464" or "[::1]:9464"'
    raise InvalidValue(f"must be {expected}, not {describe(value)}")


def format_listen_address(address: tuple[str, int]) -> str:
    host, port = address
    return toml(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def parse_textfile(value: object) -> str:
    """The path of a file for node_exporter.

    Raises:
        InvalidValue: when node_exporter would not read it.
    """
    path = parse_path(value)
    if not path.endswith(".prom"):
        raise InvalidValue(f'must end in ".prom", not {quoted(path)}: node_exporter reads no other files')
    return path


BY_NAME = {
    "duration": ValueType('a duration: "0s", "30s", "5m", "1h30m"', parse_duration_or_zero, format_duration),
    "share": ValueType(
        'a share: "80%"',
        share_parser('from "0%" to "100%"', 'a share from "0%" to "100%"', may_be_zero=True),
        format_share,
    ),
    "size": ValueType('a size: "50GB", "1.5TiB"', parse_size, format_size),
}
"""The types that a rule's field names in its annotation: rules do not import the config."""

Size = Annotated[int, "size"]
Duration = Annotated[Seconds, ValueType('a duration: "2s", "15m", "1h30m", "90d"', parse_duration, format_duration)]
DurationOrNever = Annotated[
    Seconds,
    ValueType(
        'a duration, or "never"',
        parse_duration_or_never,
        lambda seconds: toml("never") if seconds == NEVER else format_duration(seconds),
    ),
]
SlurmPeriod = Annotated[Seconds, polling_period("each query loads the Slurm controller of the whole site")]
WandbPeriod = Annotated[Seconds, polling_period("W&B limits the requests of a whole team")]
Share = Annotated[float, ValueType('a share: "80%"', parse_share, format_share)]
Datetime = Annotated[Instant, ValueType("a date and time: 2031-05-01T08:00:00+02:00", parse_datetime)]
TimeOfDay = Annotated[tuple[int, int], ValueType('a time of day: "08:30"', parse_time_of_day)]
ListenAddress = Annotated[
    tuple[str, int],
    ValueType('a port, or an IP address and a port: "127.0.0.1:9464"', parse_listen_address, format_listen_address),
]
TextfilePath = Annotated[str, ValueType('an absolute path that ends in ".prom"', parse_textfile)]
Days = Annotated[tuple[int, ...], ValueType('days: ["tue", "sat"]', parse_days)]
