"""Disk quotas: what limits a directory, and the tables of the tools that show it. Pure.

A number that is marked as inexact is used and said to be so; a limit of 0 is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from trainmon.analysis.disks.capacity import lies_on
from trainmon.lib import Instant, TrainmonError, clean, duration, scrub
from trainmon.model import Allowance

# ---- what `lfs quota` and quota(1) print -----------------------------------------------------------------------------

UNITS = "KMGTPE"
NUMBER = re.compile(r"\[?([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTPE]?)(?:i?B)?\]?(\*?)\]?", re.IGNORECASE)
"""At most 20 digits, as 2**64 has: a longer one is no number of bytes or files, and float or int may refuse it."""
QUOTA_TITLE = re.compile(r"Disk quotas for (\w+) (\S+)(?: \((\w+) \d+\))?:?\s*(none|no limited resources used)?")
TITLES = {"usr": "user", "grp": "group", "prj": "project"}
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
            owner, waiting = f"{TITLES.get(title[1], title[1])} {title[2].rstrip(':')}", []
            continue
        words = line.split()
        if not words or words[0] == "Filesystem" or AWAY.search(line):
            continue
        if len(words) == 1 and ("/" in words[0] or words[0].endswith(SERVER)):
            waiting = words  # a filesystem, or one of its servers: its numbers are in the next line
            continue
        row = _row([*waiting, *words], owner, now)
        if row is not None:
            waiting = []
            yield row
        else:
            waiting = [*waiting, *words] if waiting and len(waiting) + len(words) < COLUMNS else []


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


# ---- what quota commands print → allowances --------------------------------------------------------------------------

Parser = Literal["lustre", "gpfs", "beegfs", "quota", "du"]

KINDS = {"USR": "user", "GRP": "group", "FILESET": "fileset"}
POOL = re.compile(r"Quota information for storage pool (.+?) \(ID:")
MOST = 200
"""Allowances that are read of one answer: a command that lists all users of a site is the wrong one."""


class Unread(TrainmonError):
    """An answer that the parser does not understand."""


class Answer(NamedTuple):
    """The parsed answer of a quota command."""

    allowances: tuple[Allowance, ...]
    trouble: str | None = None
    """What it complains of while it answers."""


def parse(parser: Parser, text: str, now: Instant, argv: Sequence[str] = (), limit: int | None = None) -> Answer:
    """What a command printed on its standard output and error. `argv` shows whose quota it is and the units of du.
    `limit` is the limit where the command does not know one.

    Raises:
        Unread: when the parser does not understand the output.
    """
    text = "\n".join(clean(line) for line in text.splitlines())
    found = list(islice(PARSERS[parser](text, QuotaQuery(tuple(argv), limit, now)), MOST + 1))
    if len(found) > MOST:
        raise Unread(f"it lists more than {MOST} quotas", hint="name one user or group in the command")
    found = _numbered(found)
    if not found and not reports_no_quota(parser, text):
        raise Unread("its output cannot be parsed", hint=f"the parser is {parser}: does it match the command?")
    complaint = next((line.strip() for line in text.splitlines() if AWAY.search(line)), None)
    if complaint is None and any(one.is_inexact for one in found):
        complaint = "some numbers are marked as inexact"
    return Answer(tuple(found), None if complaint is None else scrub(complaint))


def _numbered(found: list[Allowance]) -> list[Allowance]:
    """Number the allowances of one user on one filesystem (several filesets or pools), because each may be full."""
    seen: Counter[tuple[str, str | None]] = Counter()
    for i, one in enumerate(found):
        number = seen[one.owner, one.filesystem] = seen[one.owner, one.filesystem] + 1
        found[i] = one if number == 1 else replace(one, owner=f"{one.owner} #{number}")
    return found


def reports_no_quota(parser: Parser, text: str) -> bool:
    """Whether the answer is that there is no quota."""
    if parser == "quota":
        return any(found[4] for line in text.splitlines() if (found := QUOTA_TITLE.match(line.strip())))
    return parser == "gpfs" and ":HEADER:" in text


def of_path(answer: Answer, path: str) -> Answer:
    """The allowances of this path, from an answer about several filesystems.

    Raises:
        Unread: when the answer does not show which ones: the limit of another filesystem must not count here.
    """
    names = {one.filesystem for one in answer.allowances if one.filesystem is not None}
    if len(names) < 2:
        return answer
    mine = [name for name in names if lies_on(path, name)]
    if not mine:
        listed = ", ".join(sorted(names)[:3])
        raise Unread(
            f"its output lists several filesystems ({listed})", hint=f"name the filesystem of {path} in the command"
        )
    best = max(mine, key=len)
    return answer._replace(allowances=tuple(one for one in answer.allowances if one.filesystem in (best, None)))


# ---- GPFS: colons and a header ---------------------------------------------------------------------------------------


def _gpfs(text: str, query: QuotaQuery) -> Iterator[Allowance]:
    """`mmlsquota -Y`: the HEADER row names the columns, which differ from version to version. KiB."""
    columns: list[str] = []
    for line in text.splitlines():
        fields = [unquote(field) for field in line.split(":")]
        if "HEADER" in fields[:3]:
            columns = fields
        elif columns and fields[0] == columns[0]:
            row = dict(zip(columns, fields, strict=False))
            if "blockUsage" in row:
                yield _gpfs_row(row)


def _gpfs_row(row: dict[str, str]) -> Allowance:
    kind, fileset = row.get("quotaType", ""), row.get("filesetname", "")
    within = f" in fileset {fileset}" if fileset not in ("", "root") and kind != "FILESET" else ""
    doubt = _whole(row.get("blockInDoubt")) or 0
    return Allowance(
        owner=clean(f"{KINDS.get(kind, kind.lower())} {row.get('name') or row.get('id') or '?'}{within}"),
        filesystem=clean(row.get("filesystemName", "")) or None,
        used_bytes=_kib((_whole(row.get("blockUsage")) or 0) + doubt),
        soft_bytes=_kib(_whole(row.get("blockQuota"))) or None,
        hard_bytes=_kib(_whole(row.get("blockLimit"))) or None,
        bytes_grace=_gpfs_grace(row.get("blockGrace", "")),
        used_inodes=(_whole(row.get("filesUsage")) or 0) + (_whole(row.get("filesInDoubt")) or 0),
        soft_inodes=_whole(row.get("filesQuota")) or None,
        hard_inodes=_whole(row.get("filesLimit")) or None,
        inodes_grace=_gpfs_grace(row.get("filesGrace", "")),
    )


def _gpfs_grace(word: str) -> str | None:
    return None if word.strip() in ("", "none", "-", "0") else clean(word.strip())


def _whole(word: str | None) -> int | None:
    return int(word) if word is not None and word.isascii() and word.isdigit() and len(word) <= 20 else None


def _kib(value: int | None) -> int | None:
    return None if value is None else value * 1024


# ---- BeeGFS: by position ---------------------------------------------------------------------------------------------


def _beegfs(text: str, query: QuotaQuery) -> Iterator[Allowance]:
    """`beegfs-ctl --getquota`, with --csv or in its form for people; two columns are called `hard`."""
    kind, pool = "group" if any(word.startswith("--gid") for word in query.argv) else "user", ""
    for line in text.splitlines():
        title = POOL.search(line)
        if title is not None:
            pool = "" if title[1] == "Default" else f" in pool {title[1]}"
        fields = [field.strip() for field in re.split(r"\|+|,", line)]
        if len(fields) < 6 or fields[1:3] == ["id", "size"] or not fields[1].isdigit():
            continue
        used, files = _size(fields[2]), _whole(fields[4])
        if used is None or files is None:
            continue
        yield Allowance(
            owner=clean(f"{kind} {fields[0] or fields[1]}{pool}"),
            used_bytes=used,
            hard_bytes=_size(fields[3]) or None,
            used_inodes=files,
            hard_inodes=_whole(fields[5]) or None,
        )


def _size(word: str) -> int | None:
    """Bytes, or with a unit: `76.61 GiB`."""
    if word.lower() in ("", "0", "unlimited", "none", "-", "∞"):
        return None if word.lower() != "0" else 0
    found = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*(?:([KMGTPE])i?)?(?:B|Byte)?", word, re.IGNORECASE)
    if found is None:
        return None
    return round(float(found[1]) * (1024 ** (UNITS.index(found[2].upper()) + 1) if found[2] else 1))


# ---- du: where nothing else works ------------------------------------------------------------------------------------


def _du(text: str, query: QuotaQuery) -> Iterator[Allowance]:
    """`du -s`: the last line; what may be used is for the config to say."""
    rows = [line.split(maxsplit=1) for line in text.splitlines()]
    sums = [
        (size, row[1]) for row in rows if len(row) == 2 and row[1].startswith("/") if (size := NUMBER.fullmatch(row[0]))
    ]
    if not sums:
        return
    size, path = sums[-1]
    used = _size(size[1] + size[2]) if size[2] else round(float(size[1]) * _unit_of_du(query.argv))
    denied = "Permission denied" in text or "cannot " in text
    yield Allowance(owner=clean(path), filesystem=None, used_bytes=used, hard_bytes=query.limit, is_inexact=denied)


def _unit_of_du(argv: Sequence[str]) -> int:
    """Bytes in one of its numbers: GNU du counts in KiB by default."""
    units = {"k": 1024, "m": 1024**2, "b": 1}
    for word in argv[1:]:
        if word in ("--bytes", "--block-size=1", "-B1"):
            return 1
        if word.startswith("-") and not word.startswith("--"):
            unit = next((units[letter] for letter in word[1:] if letter in units), None)
            if unit is not None:
                return unit
    return 1024


PARSERS: dict[Parser, Callable[[str, QuotaQuery], Iterable[Allowance]]] = {
    "lustre": lustre,
    "gpfs": _gpfs,
    "beegfs": _beegfs,
    "quota": quota,
    "du": _du,
}
"""By the name in the config."""
