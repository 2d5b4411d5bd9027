"""The disks as rows: free bytes, usable bytes, growth, and disks that do not answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from trainmon.analysis.disks import is_shared
from trainmon.lib import Instant, Seconds, cell_width, clean, natural_key, shorten
from trainmon.model import Disk, Quota, State
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
from tui.views.alerts import Concern, alert_ranks
from tui.views.table import AGES_EVERY, Column, RowCache, Table, filtered, heads, row_cells, value, warned
from tui.widgets import Row

NEARLY_FULL, FULL = 0.90, 0.97
STRAIGHT = 0.9
"""The least R² of a forecast that is shown as a time where other users write as well."""
QUOTA_SHOWN = 0.80
"""The least used share of a quota that a row shows. The frame always shows it."""
STALE_AFTER: Seconds = 180.0
"""Disks are read about every 30 s. The numbers are dimmed when they are older than this."""


class ShownDisk(NamedTuple):
    """One row: a disk of one host, or one that several hosts share."""

    disk: Disk
    hosts: tuple[str, ...]
    usable: bool
    """Whether a usable share limits it."""
    stale: bool

    @property
    def key(self) -> str:
        return f"shared:{self.disk.cluster}:{self.disk.path}" if len(self.hosts) > 1 else self.disk.key

    @property
    def name(self) -> str:
        """`/scratch` of a shared disk, else `node07:/tmp`."""
        shared = self.disk.state == "ok" and is_shared(self.disk)
        return clean(self.disk.path if shared else f"{self.disk.host}:{self.disk.path}", 200)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Its keys in alerts."""
        return tuple(f"{where}:{self.disk.path}" for where in (*self.hosts, self.disk.cluster))

    @property
    def used(self) -> float | None:
        """The used part of the usable bytes, 0 to 1."""
        share, usable, total = bytes_used(self.disk), self.disk.usable_free_bytes, self.disk.total_bytes
        if share is None or not self.usable or usable is None or not total:
            return share
        return share * total / max(1.0, share * total + usable)

    @property
    def has_only_a_rate(self) -> bool:
        """Whether its growth is that of the last two minutes."""
        return self.disk.recent_per_day is not None

    @property
    def per_day(self) -> float | None:
        """Its growth."""
        return self.disk.recent_per_day if self.has_only_a_rate else self.disk.bytes_per_day

    @property
    def full_at(self) -> Instant | None:
        """When it is full. The growth of a shared disk must be nearly linear to be shown as a time."""
        disk, shared = self.disk, is_shared(self.disk)
        if disk.falling_full_at is not None:
            return disk.falling_full_at
        if disk.full_at is None and disk.inodes_full_at is None:
            return None
        ends = ((disk.full_at, disk.forecast), (disk.inodes_full_at, disk.inodes_forecast))
        return min((
            at for at, forecast in ends
            if at is not None
            and (forecast is None or not shared or forecast.of == "quota" or forecast.fit >= STRAIGHT)
        ), default=None)  # fmt: skip


def shown_disks(state: State) -> list[ShownDisk]:
    """All disks. A network filesystem that many hosts mount at one path is one row, from the latest reading."""
    groups: dict[tuple[str, ...], list[Disk]] = {}
    for disk in state.disks.values():
        shared = disk.state == "ok" and is_shared(disk)
        key = (disk.cluster, disk.path, str(disk.total_bytes)) if shared else (disk.cluster, disk.path, "", disk.host)
        groups.setdefault(key, []).append(disk)
    found = []
    for disks in groups.values():
        latest = max(disks, key=lambda disk: disk.at)
        source = state.sources.get(f"node:{latest.host}")
        stale = state.at - latest.at > STALE_AFTER or (source is not None and source.health in ("late", "down"))
        usable = latest.path in state.usable or latest.usable_free_bytes not in (None, latest.free_bytes)
        found.append(ShownDisk(latest, tuple(sorted(disk.host for disk in disks)), usable, stale))
    return found


def alarm(share: float | None) -> str:
    """The style of a used share."""
    return "crit" if (share or 0.0) >= FULL else "warn" if (share or 0.0) >= NEARLY_FULL else ""


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
    """0 does not answer, 1 full or soon full, 2 nearly full, 3 read-only, 4 healthy."""
    if shown.disk.state != "ok":
        return 0
    shares = (shown.used, inodes_used(shown.disk), quota_used(shown.disk.quota))
    styles = {*map(alarm, shares), full_in(shown.full_at, now).style}
    return 1 if "crit" in styles else 2 if "warn" in styles else 3 if shown.disk.read_only else 4


# ---- columns -------------------------------------------------------------------------------------------------------


def usable_cell(shown: ShownDisk, _now: Instant) -> Span:
    """The usable free bytes."""
    text = size(shown.disk.usable_free_bytes)
    return warned(text, alarm(shown.used)) if shown.usable else value(NOT_APPLICABLE + " ")


def inodes_cell(shown: ShownDisk, _now: Instant) -> Span:
    """The used share of the inodes."""
    share = inodes_used(shown.disk)
    return value(NOT_APPLICABLE + " ") if shown.disk.total_inodes is None else warned(percent(share, 1.0), alarm(share))


def trend_cell(shown: ShownDisk, _now: Instant) -> Span:
    """The growth of a day; ~ before the rate of the last two minutes."""
    growth = shown.per_day
    if growth is None:
        return value(UNKNOWN + " ")
    mark = "~" if shown.has_only_a_rate else ""
    text = "0" if abs(growth) < 1e6 else mark + ("+" if growth > 0 else "") + size(growth)
    return Span(text + " ", "dim" if growth < 1e6 else "")


def full_in_cell(shown: ShownDisk, now: Instant) -> Span:
    """The time until it is full."""
    text, style = full_in(shown.full_at, now)
    return Span(text if text.endswith("!") else text + " ", style)


BAR = 12
"""Cells of the bar that shows the used share."""


def bar_cell(shown: ShownDisk, _now: Instant) -> Span:
    """The used share as a bar."""
    share = bytes_used(shown.disk)
    filled = 0 if share is None else min(BAR, max(round(share * BAR), 1 if share > 0 else 0))
    return Span("" if share is None else "  " + "■" * filled + "□" * (BAR - filled), alarm(shown.used))


USABLE = Column("usable ", 8, usable_cell, 66)
COLUMNS: tuple[Column[ShownDisk, Instant], ...] = (
    Column("type", 9, lambda one, _: Span(shorten(clean(one.disk.filesystem or UNKNOWN), 8), "dim"), 118, left=True),
    Column("", BAR + 2, bar_cell, 84, left=True),
    Column("free ", 8, lambda one, _: warned(size(one.disk.free_bytes), "" if one.usable else alarm(one.used))),
    Column("used ", 5, lambda one, _: Span(percent(bytes_used(one.disk), 1.0) + " "), 46),
    USABLE,
    Column("inodes ", 8, inodes_cell, 36),
    Column("per day ", 8, trend_cell, 56),
    Column("full in ", 9, full_in_cell, 28),
)

NOTE = 12
"""Cells that are kept for notes at the end of a line, where there is room at all."""


def disk_layout(width: int, names: Iterable[str], *, usable: bool) -> Table[ShownDisk, Instant]:
    """The columns of a width. Paths get what they need as far as there is room."""
    columns = tuple(c for c in COLUMNS if c.from_width <= width and (usable or c is not USABLE))
    space = Table(width, 0, columns).rest
    longest = max((cell_width(name) for name in names), default=4) + 1
    return Table(width, max(4, min(longest, space - (NOTE if space > 30 else 0))), columns)


def disk_head(table: Table[ShownDisk, Instant]) -> tuple[Span, ...]:
    """The names of the columns."""
    return (Span(f"  {'PATH':<{table.name}}{heads(table.columns)}", "head"),)


SIGNS = (Span(DEAD + " ", "crit"), Span(CRIT + " ", "crit"), Span(WARN + " ", "warn"), Span(WARN + " ", "warn"),
         Span("  "))  # fmt: skip
"""By rank."""


def disk_row(shown: ShownDisk, table: Table[ShownDisk, Instant], now: Instant) -> Row:
    """One disk's line."""
    stale = "dim" if shown.stale else ""
    spans = [SIGNS[rank(shown, now)], Span(pad(shorten(shown.name, table.name - 1), table.name), stale)]
    if shown.disk.state != "ok":
        reason = shorten(unanswered(shown.disk, now), table.width - 2 - table.name)
        return Row(shown.key, (*spans, Span(reason, "crit")))
    spans += row_cells(table.columns, shown, now, stale)
    note = notes(shown, now)
    if note.text and table.rest > 3:
        spans.append(Span(" " + shorten(note.text, table.rest - 1), note.style))
    return Row(shown.key, tuple(spans))


def disk_rows(shown: Sequence[ShownDisk], table: Table[ShownDisk, Instant], now: Instant, cache: RowCache) -> list[Row]:
    """The rows of these disks."""
    return cache.rows((one.key, (one, table, now // AGES_EVERY), partial(disk_row, one, table, now)) for one in shown)


def unanswered(disk: Disk, now: Instant) -> str:
    """Why there are no numbers."""
    if disk.state == "hung":
        return f"hung: {clean(disk.error, 400)}" if disk.error else f"hung: no answer for {age(now - disk.at)}"
    return clean(disk.error or "cannot be read", 400)


def notes(shown: ShownDisk, now: Instant) -> Span:
    """The text behind the numbers: read-only, quota, inodes, age."""
    disk, quota = shown.disk, quota_used(shown.disk.quota) or 0.0
    parts = (
        "READ-ONLY" if disk.read_only else "",
        f"quota {percent(quota, 1.0)}" if quota >= QUOTA_SHOWN else "",
        "inodes first" if disk.inodes_full_at is not None and disk.inodes_full_at == shown.full_at else "",
        f"{age(now - disk.at)} old" if shown.stale else "",
    )
    return Span("  ".join(part for part in parts if part), alarm(quota) or ("warn" if disk.read_only else "dim"))


def quota_sentence(quota: Quota, now: Instant) -> str:
    """The limits and the usage of a quota."""
    limits = [
        f"{one.owner} {size(one.used_bytes)} of {size(one.hard_bytes)}" + (" (inexact)" if one.is_inexact else "")
        for one in quota.allowances
        if one.hard_bytes is not None
    ]
    graces = [f"soft limit: {g}" for one in quota.allowances for g in (one.bytes_grace, one.inodes_grace) if g]
    text = ", ".join([*limits, *graces]) or ("no limit" if quota.allowances else "none is set")
    return f"{text}, read {age(now - quota.at)} ago"


def doubt(shown: ShownDisk, ends: Instant, now: Instant) -> str:
    """The assumption of a forecast, and its range where other users write as well."""
    forecast = shown.disk.forecast
    if forecast is None or forecast.full_at != ends:
        return " at this rate"
    if not is_shared(shown.disk):
        return f", {forecast.description}"
    first = "?" if forecast.earliest is None else age(forecast.earliest - now)
    last = "never" if forecast.latest is None else age(forecast.latest - now)
    return f" ({first} to {last}, R² {forecast.fit:.2f}), {forecast.description}"


# ---- all of them ---------------------------------------------------------------------------------------------------

ORDERS: dict[str, Callable[[ShownDisk, Instant], tuple[Any, ...]]] = {
    "severity": lambda shown, now: (rank(shown, now), natural_key(shown.name)),
    "name": lambda shown, _now: (natural_key(shown.name),),
    "free": lambda shown, _now: (1.0 - (shown.used or 0.0), natural_key(shown.name)),
    "full in": lambda shown, _now: (shown.full_at or float("inf"), natural_key(shown.name)),
}


ALERT_RANKS = {Concern.CRITICAL: 1, Concern.WARNING: 2, Concern.PENDING: 3, Concern.NONE: 4}
"""The rank of a disk with an alert, if its own rank is not worse."""


def concern_of(shown: ShownDisk, alerts: Mapping[str, Concern]) -> Concern:
    """The worst alert of a row, by the alerts of each Disk.key."""
    return min(alerts.get(key, Concern.NONE) for key in shown.subjects)


def ordered_disks(state: State, sort: str, query: str = "") -> list[ShownDisk]:
    """The disks that match a filter, in this order. Alerts and numbers determine the severity."""
    found, alerts = filtered(shown_disks(state), query, searched), alert_ranks(state).disks

    def order(shown: ShownDisk) -> tuple[object, ...]:
        first, *others = ORDERS[sort](shown, state.at)
        if alerts and sort == "severity":
            first = min(first, ALERT_RANKS[concern_of(shown, alerts)])
        return first, *others

    return sorted(found, key=order)


def searched(shown: ShownDisk) -> str:
    """The text that the filter searches."""
    disk = shown.disk
    return " ".join((shown.name, *shown.hosts, disk.cluster, disk.state, disk.filesystem or "", disk.error or ""))
