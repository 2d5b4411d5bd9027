"""The disks as rows: what is free, what may be used, how fast it goes, and what does not answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from trainmon.analysis.disks import is_shared
from trainmon.lib import Instant, cell_width, clean, natural_key, shorten
from trainmon.model import Disk, Forecast, Quota, State
from tui.style import (
    CRIT,
    DEAD,
    NOT_APPLICABLE,
    UNKNOWN,
    WARN,
    Span,
    age,
    bytes_used,
    full_in,
    inodes_used,
    pad,
    percent,
    size,
)
from tui.widgets import Row

NEARLY_FULL, FULL = 0.90, 0.97
STRAIGHT = 0.9
"""R² of a growth from which on it is told as a time where others write as well."""
TOLD = 0.80
"""The share of a quota from which on a line tells it; the frame always does."""
SOON = 86_400.0
STALE_AFTER = 180.0
"""Disks are looked at every 30 s or so; after this long without a look the numbers are dimmed."""


class ShownDisk(NamedTuple):
    """One line: a disk of one host, or one that several hosts share."""

    disk: Disk
    hosts: tuple[str, ...]
    usable: bool
    """Whether only a share of it may be used."""
    stale: bool

    @property
    def key(self) -> str:
        return f"shared:{self.disk.cluster}:{self.disk.path}" if len(self.hosts) > 1 else self.disk.key

    @property
    def name(self) -> str:
        """`/scratch` where it is shared, else `node07:/tmp`."""
        shared = self.disk.state == "ok" and is_shared(self.disk)
        return clean(self.disk.path if shared else f"{self.disk.host}:{self.disk.path}", 200)

    @property
    def used(self) -> float | None:
        """The used share of what may be used."""
        disk = self.disk
        share = bytes_used(disk)
        if share is None or not self.usable or disk.usable_free_bytes is None or not disk.total_bytes:
            return share
        taken = share * disk.total_bytes
        return taken / max(1.0, taken + disk.usable_free_bytes)

    @property
    def full_at(self) -> Instant | None:
        """When it is full; where others write as well, only what nearly is a line is shown as a time."""
        disk = self.disk
        ends = ((disk.full_at, disk.forecast), (disk.inodes_full_at, disk.inodes_forecast))
        return min((at for at, why in ends if at is not None and self._is_straight(why)), default=None)

    def _is_straight(self, forecast: Forecast | None) -> bool:
        shared = is_shared(self.disk)
        return forecast is None or not shared or forecast.of == "quota" or forecast.fit >= STRAIGHT


def gather(state: State) -> list[ShownDisk]:
    """All disks; a network filesystem that many hosts see under one path is one line, the latest look at it."""
    groups: dict[tuple[str, ...], list[Disk]] = {}
    for disk in state.disks.values():
        shared = disk.state == "ok" and is_shared(disk)
        key = (disk.cluster, disk.path, str(disk.total_bytes)) if shared else (disk.cluster, disk.path, "", disk.host)
        groups.setdefault(key, []).append(disk)
    return [_shown(state, disks) for disks in groups.values()]


def _shown(state: State, disks: list[Disk]) -> ShownDisk:
    latest = max(disks, key=lambda disk: disk.at)
    source = state.sources.get(f"node:{latest.host}")
    stale = state.at - latest.at > STALE_AFTER or (source is not None and source.health in ("late", "down"))
    usable = latest.path in state.usable or latest.usable_free_bytes not in (None, latest.free_bytes)
    return ShownDisk(latest, tuple(sorted(disk.host for disk in disks)), usable, stale)


def alarm(share: float | None) -> str:
    """The style of a used share."""
    if share is None or share < NEARLY_FULL:
        return ""
    return "crit" if share >= FULL else "warn"


RANKS = {"crit": 1, "warn": 2, "": 4, "dim": 4}


def quota_used(quota: Quota | None) -> float | None:
    """The used share of the tightest limit of a quota."""
    if quota is None:
        return None
    pairs = [
        pair for one in quota.allowances
        for pair in ((one.used_bytes, one.hard_bytes), (one.used_inodes, one.hard_inodes))
    ]  # fmt: skip
    return max((used / limit for used, limit in pairs if used is not None and limit), default=None)


def rank(shown: ShownDisk, now: Instant) -> int:
    """0 does not answer, 1 full or soon, 2 nearly, 3 read-only, 4 well."""
    if shown.disk.state != "ok":
        return 0
    shares = (shown.used, inodes_used(shown.disk), quota_used(shown.disk.quota))
    styles = (*map(alarm, shares), full_in(shown.full_at, now).style)
    worst = min(RANKS[style] for style in styles)
    return min(worst, 3) if shown.disk.read_only else worst


# ---- columns -------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column: its head, its width, and the narrowest pane that has it."""

    name: str
    width: int
    from_width: int
    cell: Callable[[ShownDisk, Instant], Span]


def _mark(text: str, style: str) -> Span:
    return Span(text + ("!" if style in ("warn", "crit") else " "), style)


def _free(shown: ShownDisk, _now: Instant) -> Span:
    style = "" if shown.usable else alarm(shown.used)
    return _mark(size(shown.disk.free_bytes), style)


def _usable(shown: ShownDisk, _now: Instant) -> Span:
    if not shown.usable:
        return Span(NOT_APPLICABLE + " ", "dim")
    return _mark(size(shown.disk.usable_free_bytes), alarm(shown.used))


def _share(shown: ShownDisk, _now: Instant) -> Span:
    return Span(percent(shown.disk.free_bytes, shown.disk.total_bytes) + " ", "")


def _inodes(shown: ShownDisk, _now: Instant) -> Span:
    if shown.disk.total_inodes is None:
        return Span(NOT_APPLICABLE + " ", "dim")
    share = inodes_used(shown.disk)
    return _mark(percent(share, 1.0), alarm(share))


def _trend(shown: ShownDisk, _now: Instant) -> Span:
    growth = shown.disk.bytes_per_day
    if growth is None:
        return Span(UNKNOWN + " ", "dim")
    if abs(growth) < 1e6:
        return Span("0 ", "dim")
    return Span(f"{'+' if growth > 0 else ''}{size(growth)} ", "" if growth > 0 else "dim")


def _full_in(shown: ShownDisk, now: Instant) -> Span:
    found = full_in(shown.full_at, now)
    return found if found.text.endswith("!") else Span(found.text + " ", found.style)


BAR = 12
"""Cells of the bar that shows what is used."""


def _bar(shown: ShownDisk, _now: Instant) -> Span:
    share = bytes_used(shown.disk)
    if share is None:
        return Span(" " * BAR)
    filled = min(BAR, max(round(share * BAR), 1 if share > 0 else 0))
    return Span("■" * filled + "□" * (BAR - filled), alarm(shown.used))


def _kind(shown: ShownDisk, _now: Instant) -> Span:
    return Span(shorten(clean(shown.disk.filesystem or UNKNOWN), 8), "dim")


COLUMNS = (
    Column("type", 9, 118, _kind),
    Column("used", BAR + 2, 84, _bar),
    Column("free ", 8, 0, _free),
    Column("% ", 5, 46, _share),
    Column("usable ", 8, 66, _usable),
    Column("inodes ", 8, 36, _inodes),
    Column("a day ", 8, 56, _trend),
    Column("full in ", 9, 28, _full_in),
)


class DiskLayout(NamedTuple):
    """The columns that a width has, and the cells that are left for the path."""

    width: int
    name: int
    columns: tuple[Column, ...]


NOTE = 12
"""Cells kept for words at the end of a line, where there is room at all."""


def layout(width: int, names: Iterable[str], *, usable: bool) -> DiskLayout:
    """Fit a line: paths get what they need as far as there is room."""
    columns = tuple(c for c in COLUMNS if c.from_width <= width and (usable or c.cell is not _usable))
    room = width - 2 - sum(column.width for column in columns)
    longest = max((cell_width(name) for name in names), default=4) + 1
    return DiskLayout(width, max(4, min(longest, room - (NOTE if room > 30 else 0))), columns)


LEFT = (_kind, _bar)
"""Columns that stand at the left of their width."""


def head(shape: DiskLayout) -> tuple[Span, ...]:
    """The names of the columns."""
    names = "".join(
        f"  {c.name}"[: c.width].ljust(c.width) if c.cell is _bar else c.name.ljust(c.width) if c.cell in LEFT
        else c.name.rjust(c.width) for c in shape.columns
    )  # fmt: skip
    return (Span(f"  {'PATH':<{shape.name}}{names}", "head"),)


def row(shown: ShownDisk, shape: DiskLayout, now: Instant) -> Row:
    """One disk's line."""
    worst = rank(shown, now)
    sign = (Span(DEAD + " ", "crit"), Span(CRIT + " ", "crit"), Span(WARN + " ", "warn"), Span(WARN + " ", "warn"),
            Span("  "))[worst]  # fmt: skip
    name = Span(pad(shorten(shown.name, shape.name - 1), shape.name), "dim" if shown.stale else "")
    if shown.disk.state != "ok":
        room = shape.width - 2 - shape.name
        return Row(shown.key, (sign, name, Span(shorten(silence(shown.disk, now), room), "crit")))
    spans = [sign, name]
    for column in shape.columns:
        cell = column.cell(shown, now)
        text = f"  {cell.text}" if column.cell is _bar else cell.text
        text = text.ljust(column.width) if column.cell in LEFT else text.rjust(column.width)
        spans.append(Span(text, "dim" if shown.stale else cell.style))
    room = shape.width - 2 - shape.name - sum(column.width for column in shape.columns)
    note = notes(shown, now)
    if note.text and room > 3:
        spans.append(Span(" " + shorten(note.text, room - 1), note.style))
    return Row(shown.key, tuple(spans))


class DiskRows:
    """Rows of disks; one that was not looked at since keeps the row it had. Only ages move, and those coarsely."""

    AGES_EVERY = 10.0

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[object, ...], Row]] = {}

    def rows(self, shown: Sequence[ShownDisk], shape: DiskLayout, now: Instant) -> list[Row]:
        tick = now // self.AGES_EVERY
        kept, self._kept = self._kept, {}
        for each in shown:
            why = (each.disk, each.hosts, each.usable, each.stale, shape, tick)
            old = kept.get(each.key)
            self._kept[each.key] = old if old is not None and old[0] == why else (why, row(each, shape, now))
        return [self._kept[each.key][1] for each in shown]


def silence(disk: Disk, now: Instant) -> str:
    """Why there are no numbers."""
    if disk.state == "hung":
        return f"hung: {clean(disk.error, 400)}" if disk.error else f"hung: no answer for {age(now - disk.at)}"
    return clean(f"{disk.error or 'cannot be read'}", 400)


def notes(shown: ShownDisk, now: Instant) -> Span:
    """Words after the numbers: read-only, inodes first, how old."""
    disk, words, style = shown.disk, [], "dim"
    if disk.read_only:
        words.append("READ-ONLY")
        style = "warn"
    quota = quota_used(disk.quota)
    if quota is not None and quota >= TOLD:
        words.append(f"quota {percent(quota, 1.0)}")
        style = alarm(quota) or style
    if disk.inodes_full_at is not None and disk.inodes_full_at == shown.full_at:
        words.append("inodes first")
    if shown.stale:
        words.append(f"{age(now - disk.at)} old")
    return Span("  ".join(words), style)


# ---- all of them ---------------------------------------------------------------------------------------------------

Order = Callable[[ShownDisk, Instant], tuple[object, ...]]

ORDERS: dict[str, Order] = {
    "severity": lambda shown, now: (rank(shown, now), natural_key(shown.name)),
    "name": lambda shown, _now: (natural_key(shown.name),),
    "free": lambda shown, _now: (1.0 - (shown.used or 0.0), natural_key(shown.name)),
    "full in": lambda shown, _now: (shown.full_at or float("inf"), natural_key(shown.name)),
}


def ordered(state: State, sort: str, text: str = "") -> list[ShownDisk]:
    """The disks that match, in the order asked for."""
    words = text.lower().split()
    found = [shown for shown in gather(state) if all(word in haystack(shown) for word in words)]
    return sorted(found, key=lambda shown: ORDERS[sort](shown, state.at))


def haystack(shown: ShownDisk) -> str:
    """What the filter searches in."""
    disk = shown.disk
    return " ".join(
        (shown.name, *shown.hosts, disk.cluster, disk.state, disk.filesystem or "", disk.error or "")
    ).lower()
