"""Parses the values in Slurm's output: rows and fields, times, durations, lists of hosts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from trainmon.lib import Instant, Seconds, clean

NOTHING = frozenset({
    "", "(null)", "None", "N/A", "n/a", "NONE", "none", "Unknown", "UNKNOWN", "NOT_SET", "INVALID", "UNLIMITED",
    "Partition_Limit", "None assigned", "INFINITE",
})  # fmt: skip
"""What Slurm writes for no value."""

FIRST_MARK = re.compile(r"^\|[0-9a-f]*#|\|[0-9a-f]{6}#", re.MULTILINE)
"""A login script may print text before our mark, without a line feed at its end."""
DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)")
MOST_HOSTS = 100_000
"""More than any cluster has: a longer expression is not expanded."""


def rows(text: str, count: int) -> Iterator[list[str]]:
    """The rows of output with a mark before every field (see commands.MARK), as lists of `count` fields.

    The first row defines the mark. A line feed in a job's name does not end its row. A row with fewer fields is left
    out: the output was cut."""
    found = FIRST_MARK.search(text)
    if found is None:
        return
    mark = found[0]
    for row in re.split("\n(?=" + re.escape(mark) + ")", text[found.start() :]):
        fields = row.split(mark, count)[1:]
        if len(fields) == count:
            yield fields


def printable(text: str, limit: int = 4_000) -> str | None:
    """A field as printable text; None if Slurm has no value."""
    text = text.strip()
    return None if text in NOTHING else clean(text, limit)


def number(text: str) -> int | None:
    """`1024`, `4-8` (its start) or `12(idle)`; None for anything else."""
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else None


def instant(text: str) -> Instant | None:
    """`2026-11-21T12:03:00`, in UTC, which the client sets."""
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def seconds(text: str) -> Seconds | None:
    """`2-03:00:00`, `03:00:00` or `03:00`; None for UNLIMITED and the like."""
    found = DURATION.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


@lru_cache(maxsize=1024)
def hosts(text: str) -> tuple[str, ...]:
    """`gpu-[001-003,007],login1` → every name. An invalid expression is one name, unchanged.

    ClusterShell is not used: it would run its group commands for an `@` in text that other users write."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text if text not in NOTHING else ""):
        names += _expanded(clean(part.strip(), 1_000), MOST_HOSTS - len(names))
    return tuple(names)


def _expanded(text: str, limit: int) -> list[str]:
    names = [""]
    for plain, inside in re.findall(r"([^\[]+)|\[([^\]]*)\]", text):
        ends = [plain] if plain else _numbers(inside, limit)
        if not ends or len(names) * len(ends) > limit:
            return [text]
        names = [name + end for name in names for end in ends]
    return names


def _numbers(text: str, limit: int) -> list[str]:
    """`001-003,007` → 001, 002, 003, 007; empty if it is invalid."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdigit() and last.isdigit()) or int(last) - int(first) >= limit - len(found):
            return []
        found += [str(value).zfill(len(first)) for value in range(int(first), int(last) + 1)]
    return found
