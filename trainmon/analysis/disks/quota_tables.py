"""What `lfs quota` and quota(1) print: tables of words, wrapped where a path is long. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, clean, duration
from trainmon.model import Allowance

UNITS = "KMGTPE"
NUMBER = re.compile(r"\[?([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTPE]?)(?:i?B)?\]?(\*?)\]?", re.IGNORECASE)
"""At most 20 digits, as 2**64 has: a longer one is no number of bytes or files, and float or int may refuse it."""
QUOTA_TITLE = re.compile(r"Disk quotas for (\w+) (\S+)(?: \((\w+) \d+\))?:?\s*(none|no limited resources used)?")
KINDS = {"usr": "user", "grp": "group", "prj": "project"}
AWAY = re.compile(r"some errors happened|may be not working|is inaccurate|quotactl error|^du: ", re.IGNORECASE)
COLUMNS = 9
SERVER = "_UUID"
EXPIRED = "expired"


class QuotaQuery(NamedTuple):
    """What a command was, and when."""

    argv: tuple[str, ...]
    limit: int | None
    """The allowed size, if the config sets it."""
    now: Instant


class Cell(NamedTuple):
    """A number of a table, with its marks."""

    value: int
    is_over: bool
    is_inexact: bool


def lustre(text: str, query: QuotaQuery) -> Iterator[Allowance]:
    """`lfs quota`: kbytes; a long path wraps to the next line."""
    return _tables(text, _owner(query.argv, (("-u", "user"), ("-g", "group"), ("-p", "project"))), query.now)


def quota(text: str, query: QuotaQuery) -> Iterator[Allowance]:
    """`quota -w -p`: blocks of 1 KiB. Without -p a grace is left out where none runs, with it it is a time."""
    return _tables(text, _owner(query.argv, (("-u", "user"), ("-g", "group"))), query.now)


def _owner(argv: Sequence[str], options: Sequence[tuple[str, str]]) -> str:
    """Whose quota the command asks for, as its options say it: a quiet one does not repeat it."""
    for option, kind in options:
        if option in argv[:-1] and not argv[argv.index(option) + 1].startswith(("-", "/")):
            return f"{kind} {argv[argv.index(option) + 1]}"
    return "user"


def _tables(text: str, owner: str, now: Instant) -> Iterator[Allowance]:
    waiting: list[str] = []
    for line in text.splitlines():
        title = QUOTA_TITLE.search(line)
        if title is not None:
            owner, waiting = f"{KINDS.get(title[1], title[1])} {title[2].rstrip(':')}", []
            continue
        words = line.split()
        if not words or words[0] == "Filesystem" or AWAY.search(line):
            continue
        if len(words) == 1 and is_name(words[0]):
            waiting = words
            continue
        row = _row([*waiting, *words], owner, now)
        if row is not None:
            waiting = []
            yield row
        else:
            waiting = [*waiting, *words] if waiting and len(waiting) + len(words) < COLUMNS else []


def is_name(word: str) -> bool:
    """Whether it may be a filesystem, or one of its servers, whose numbers are in the next line."""
    return "/" in word or word.endswith(SERVER)


def _row(words: Sequence[str], owner: str, now: Instant) -> Allowance | None:
    """One filesystem: its name, then twice what is used, the soft limit, the hard limit and the grace that runs."""
    if len(words) < 7 or "/" not in words[0]:  # a single server of `lfs quota -v` has no path
        return None
    rest = list(words[1:])
    space = _part(rest, now, 1024)
    files = _part(rest, now, 1000)
    if space is None or files is None:
        return None
    return Allowance(
        owner=clean(owner),
        filesystem=clean(words[0]),
        used_bytes=space[0].value * 1024,
        soft_bytes=space[1].value * 1024 or None,
        hard_bytes=space[2].value * 1024 or None,
        bytes_grace=space[3],
        used_inodes=files[0].value,
        soft_inodes=files[1].value or None,
        hard_inodes=files[2].value or None,
        inodes_grace=files[3],
        is_inexact=any(cell.is_inexact for cell in (*space[:3], *files[:3])),
    )


def _part(rest: list[str], now: Instant, thousand: int) -> tuple[Cell, Cell, Cell, str | None] | None:
    """Take three numbers and, if there is one, the grace behind them."""
    cells = [_cell(word, thousand) for word in rest[:3]]
    if len(cells) < 3 or None in cells:
        return None
    used, soft, hard = (cell for cell in cells if cell is not None)
    del rest[:3]
    more = len(rest) in (1, 5) if rest and NUMBER.fullmatch(rest[0]) else bool(rest)
    grace = rest.pop(0) if more else ""
    return used, soft, hard, _grace(grace, used, soft, now)


def _grace(word: str, used: Cell, soft: Cell, now: Instant) -> str | None:
    """How long writes above the soft limit still succeed. `none` beside an exceeded limit means: no longer."""
    if not (used.is_over or (soft.value and used.value > soft.value)):
        return None
    if word in ("", "-", "0"):
        return None
    if word.isascii() and word.isdigit() and len(word) <= 20:
        return duration(int(word) - now) if int(word) > now else EXPIRED
    return EXPIRED if word == "none" else clean(word)


def _cell(word: str, thousand: int) -> Cell | None:
    """`95747836`, `5242880*`, `[10200224]`, `14340M`. Sizes are in KiB, also with a letter; files one by one."""
    found = NUMBER.fullmatch(word)
    if found is None:
        return Cell(0, is_over=False, is_inexact=False) if word in ("-", "none") else None
    power = UNITS.index(found[2].upper()) + (thousand == 1000) if found[2] else 0
    return Cell(round(float(found[1]) * thousand**power), is_over="*" in word, is_inexact="[" in word)
