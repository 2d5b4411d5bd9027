"""`3 Disk`: bytes and inodes of every watched path, their growth, and when they are full; worst first."""

from __future__ import annotations

from trainmon.analysis.disks import is_shared
from trainmon.lib import Instant, clean, counted
from trainmon.model import Quota, State
from tui.panes.base import Pane
from tui.style import age, full_in, percent, size
from tui.views.alerts import alert_marks, alerts_about, with_mark
from tui.views.disks import ShownDisk, concern_of, disk_head, disk_layout, disk_rows, ordered_disks, unanswered
from tui.views.table import RowCache

EMPTY = (
    ("No disk has been read yet. A node reports its disks a few seconds after", ""),
    ("it connects. Add more paths in trainmon.toml:", ""),
    ("", ""),
    ("    [[disk]]", "dim"),
    ('    path = "/scratch"', "dim"),
)


class DiskPane(Pane):
    """The watched paths. The bottom of the frame shows the selected one in full."""

    NUMBER = "3"
    NAME = "Disk"
    SORTS = ("severity", "name", "free", "full in")

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._cache = RowCache()
        self._shown: dict[str, ShownDisk] = {}

    def draw(self, state: State, width: int) -> None:
        if not state.disks:
            self.show_sentences(*EMPTY)
            return
        shown, alerts = ordered_disks(state, self.sort, self.filter), alert_marks(state).disks
        self._shown = {disk.key: disk for disk in shown}
        table = disk_layout(width, (disk.name for disk in shown), usable=any(disk.usable for disk in shown))
        self.head(*disk_head(table))
        rows = disk_rows(shown, table, state.at, self._cache)
        if alerts:
            rows = [with_mark(row, concern_of(self._shown[row.key], alerts)) for row in rows]
        self.show_rows(rows, "path")
        self.caption(right=counted(len(shown), "path"))

    def _selected(self) -> ShownDisk | None:
        return self._shown.get(self.lines.cursor_key or "")

    def copy_text(self) -> str | None:
        shown = self._selected()
        return None if shown is None else clean(shown.disk.path)

    def alerts(self) -> tuple[str, ...]:
        shown = self._selected()
        return () if shown is None or self.state is None else alerts_about(self.state, disks=shown.subjects)

    def footnote(self, state: State) -> tuple[str, str] | None:
        shown = self._selected()
        return (
            None if shown is None else (disk_sentence(shown, state.at), "crit" if shown.disk.state != "ok" else "dim")
        )


def disk_sentence(shown: ShownDisk, now: Instant) -> str:
    """One sentence about a disk: mount, hosts, size, quota, forecast."""
    disk, ends = shown.disk, shown.full_at or shown.disk.full_at
    if disk.state != "ok":
        return clean(f"{shown.name}: {unanswered(disk, now)}")
    where = f"mounted on {len(shown.hosts)} hosts" if len(shown.hosts) > 1 else f"on {disk.host}"
    has_inodes = disk.total_inodes is not None and disk.free_inodes is not None
    parts = (
        f"{disk.filesystem or 'unknown filesystem'} at {disk.mount or disk.path} {where}",
        f"{size(disk.free_bytes)} of {size(disk.total_bytes)} free",
        f"{size(disk.usable_free_bytes)} of the usable share left" if shown.usable else "",
        f"{percent(disk.free_inodes, disk.total_inodes)} of inodes free" if has_inodes else "",
        "" if disk.quota is None else quota_sentence(disk.quota, now),
        "" if ends is None else f"full in {full_in(ends, now).text.rstrip('!')}{doubt(shown, ends, now)}",
        f"read {age(now - disk.at)} ago",
    )
    return clean("; ".join(part for part in parts if part))


def quota_sentence(quota: Quota, now: Instant) -> str:
    """The limits and the usage of a quota."""
    limits = [
        f"{one.owner} {size(one.used_bytes)} of {size(one.hard_bytes)}" + (" (inexact)" if one.is_inexact else "")
        for one in quota.allowances
        if one.hard_bytes is not None
    ]
    graces = [f"soft limit: {g}" for one in quota.allowances for g in (one.bytes_grace, one.inodes_grace) if g]
    text = ", ".join([*limits, *graces]) or ("no limit" if quota.allowances else "none is set")
    return f"quota: {text}, read {age(now - quota.at)} ago"


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
