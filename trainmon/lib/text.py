"""Makes untrusted text safe to show (log lines, process names, error messages) and measures its width in cells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby

LIMIT = 4_000
"""The maximum length of a line: no screen is wider, and a 10 MB line must not stay in memory."""

SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor moves; also when cut off
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?"  # OSC, DCS, SOS, PM, APC strings
    r"|\x1b[ -/]*[0-~]?"  # every other escape, a lone ESC included
)
"""Terminal control sequences in their 7-bit and 8-bit forms. No two branches can share a character: linear time."""

INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Characters that count as printable, but show nothing or change a neighbour's width."""


def clean(text: str, limit: int = LIMIT) -> str:
    """Make a line of untrusted text safe to show: no control sequence, nothing invisible, at most `limit` long."""
    if len(text) <= limit and text.isprintable() and (text.isascii() or INVISIBLE.search(text) is None):
        return text
    if len(text) > 4 * limit:
        tail = text[-4 * limit :]
        text = tail if "\r" in tail else text[: 4 * limit]
    text = last_state(without_sequences(text))
    if "\t" in text:
        text = text.expandtabs(8)
    if not text.isascii():
        text = INVISIBLE.sub("", text)
    if not text.isprintable():
        text = "".join(map(_shown, text))
    return text[:limit]


def without_sequences(text: str) -> str:
    """Remove terminal control sequences. Other control characters stay."""
    return SEQUENCE.sub("", text)


def last_state(text: str) -> str:
    """The last state of a line that carriage returns rewrite, such as a progress bar."""
    if "\r" not in text:
        return text
    return next((state for state in reversed(text.rstrip("\r\n").split("\r")) if state.strip()), "")


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    if character.isprintable():
        return character
    category = unicodedata.category(character)
    if character == "\n" or category[0] == "Z":
        return " "
    return "\ufffd" if category in ("Cn", "Co") else ""


def cell_width(text: str) -> int:
    """The width of a clean text in terminal cells."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


@lru_cache(maxsize=4096)
def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int, mark: str = "…") -> str:
    """Cut a clean text to at most `width` cells; `mark` shows where it was cut."""
    if len(text) <= width // 2 or cell_width(text) <= width:
        return text
    width -= cell_width(mark)
    if width < 0:
        return ""
    for index, character in enumerate(text):
        width -= _cells_of(character)
        if width < 0:
            return text[:index] + mark
    return text


def shorten_start(text: str, width: int, mark: str = "…") -> str:
    """Cut a clean text at its start to at most `width` cells: for paths, whose end matters most."""
    return shorten(text[::-1], width, mark)[::-1]


def shorten_lines(text: str, limit: int, mark: str) -> tuple[str, bool]:
    """The text in at most `limit` bytes of UTF-8, cut after a line with a mark; and whether it is the whole text."""
    if len(text.encode()) <= limit:
        return text, True
    cut = text.encode()[: max(0, limit - len(mark.encode()) - 1)].decode(errors="ignore")
    whole_lines = cut if text.startswith(f"{cut}\n") else cut.rpartition("\n")[0]
    return f"{whole_lines or cut}\n{mark}", False


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last of consecutive ascending numbers: 2, 3, 4, 7 → (2, 4), (7, 7)."""
    groups = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in group] for _, group in groups]
    return [(group[0], group[-1]) for group in found]


def ordinal(number: int) -> str:
    """`2nd`, `11th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b, c and 4 more`: at most this many names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def duration(seconds: float) -> str:
    """A duration for people: 4.1s, 42s, 11m, 3h10m, 2d4h."""
    if seconds < 100:
        return f"{seconds:.1f}s".replace(".0s", "s") if seconds < 9.95 else f"{seconds:.0f}s"
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 48 * 3600:
        return f"{minutes}m" if minutes < 100 else f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{hours // 24}d{hours % 24}h"


def elapsed(since: float | None, now: float) -> str:
    """`for 3m`, or `yet` without a time: no data yet, no data for 3m."""
    return "yet" if since is None else f"for {duration(now - since)}"


AGE = r"(?<![\w./-])(\d+(?:\.\d+)?)([smhd])(?:(\d+)([smh]))?"
AGO = re.compile(rf"{AGE} ago\b")
RELATIVE = re.compile(rf"{AGE}\b")
DATED = re.compile(r"\b(?:about|as of) [A-Z][a-z]{2} \d\d \d\d:\d\d(?::\d\d)? UTC")
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def dated(text: str, at: float) -> str:
    """A sentence of that time (seconds since 1970) as it may be shown later: `2m ago` becomes `about Nov 23 12:06 UTC`,
    and after `armed for 5m` stands when that was true. A sentence that has its time stays as it is."""
    if DATED.search(text) is not None or RELATIVE.search(text) is None:
        return text

    def instant(found: re.Match[str]) -> str:
        parts = [(float(number), unit) for number, unit in (found.groups()[:2], found.groups()[2:]) if number]
        age = sum(number * UNITS[unit] for number, unit in parts) + UNITS[parts[-1][1]] / 2  # it was cut to whole units
        return f"about {_clock(at - age, found[2])} UTC"

    later = AGO.sub(instant, text)
    return later if later != text else f"{text} (as of {_clock(at, 's')} UTC)"


def _clock(at: float, unit: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%b %d %H:%M:%S" if unit == "s" else "%b %d %H:%M")


def size(value: float | None) -> str:
    """Bytes in a sentence: 4.1 TiB, -3.0 GiB, 0 B; `?` if they are not known."""
    if value is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if abs(value) < 999.5 or unit == "EiB":
            break
        value /= 1024.0
    return f"{value:.1f} {unit}" if abs(value) < 9.95 and unit != "B" else f"{value:.0f} {unit}"


def short_size(value: float | None) -> str:
    """Bytes in a column of a table, as df -h: 4.1T, -3.0G, 0B."""
    return size(value).replace(" ", "").removesuffix("iB")


def mib_size(mib: float | None) -> str:
    """MiB in a sentence: 78 GiB, 512 MiB; `?` if they are not known."""
    return size(None if mib is None else mib * 1_048_576.0)


@lru_cache(4096)
def natural_key(name: str) -> tuple[str | int, ...]:
    """A sort key: gpu-2 comes before gpu-10. Texts and numbers alternate, so all keys can be compared."""
    return tuple(int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name)))
