"""`3 Disk`: bytes and inodes of every watched path, their growth, and when they are full; worst first."""

from __future__ import annotations

from trainmon.lib import Instant, clean, counted, size
from trainmon.model import State
from tui.panes.base import Entries, Pane
from tui.style import age, bytes_used, full_in, inodes_used, percent
from tui.views.alerts import alert_marks, alerts_about, with_mark
from tui.views.disks import (
    COLUMNS,
    DISK_FIELDS,
    PATH,
    ShownDisk,
    concern_of,
    disk_layout,
    disk_rows,
    doubt,
    ordered_disks,
    quota_sentence,
    shown_disks,
    unanswered,
)
from tui.views.table import RowCache

EMPTY = (
    ("No disk has been read yet. A node reports its disks a few seconds after it connects.", ""),
    ("Add more paths in trainmon.toml:", ""),
    ("", ""),
    ("    [[disk]]", "dim"),
    ('    path = "/scratch"', "dim"),
)


class DiskPane(Pane):
    """The watched paths. The bottom of the frame shows the selected one in full."""

    NUMBER = "3"
    NAME = "Disk"
    ORDER = "worst"
    FIELDS = DISK_FIELDS
    COLUMNS = COLUMNS

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._cache = RowCache()
        self._shown: dict[str, ShownDisk] = {}

    def entries(self, state: State) -> Entries:
        return shown_disks(state), state.at

    def draw(self, state: State, width: int) -> None:
        if not state.disks:
            self.show_sentences(*EMPTY)
            return
        shown, alerts = ordered_disks(state, self.sort, self.filter), alert_marks(state).disks
        self._shown = {disk.key: disk for disk in shown}
        table = disk_layout(
            width, (disk.name for disk in shown), usable=any(disk.usable for disk in shown), chosen=self.columns
        )
        self.head(table.head(PATH, self.sort))
        rows = disk_rows(shown, table, state.at, self._cache)
        if alerts:
            rows = [with_mark(row, concern_of(self._shown[row.key], alerts)) for row in rows]
        self.show_rows(rows, "path")
        self.caption("", counted(sum(len(one.alike) or 1 for one in shown), "path"))

    def _selected(self) -> ShownDisk | None:
        return self._shown.get(self.lines.cursor_key or "")

    def copy_text(self) -> str | None:
        shown = self._selected()
        return None if shown is None else clean(shown.disk.path)

    def alerts(self) -> tuple[str, ...]:
        shown = self._selected()
        return () if shown is None else alerts_about(self.state, disks=shown.subjects)

    def footnote(self, state: State) -> tuple[str, str] | None:
        shown = self._selected()
        return (
            None if shown is None else (disk_sentence(shown, state.at), "crit" if shown.disk.state != "ok" else "dim")
        )


def disk_sentence(shown: ShownDisk, now: Instant) -> str:
    """One sentence about a disk: size, quota, forecast, mount, hosts. The numbers come first: it may be cut."""
    disk, ends = shown.disk, shown.full_at or shown.disk.full_at
    if disk.state != "ok":
        return clean(f"{shown.name}: {unanswered(disk, now)}")
    where = f"mounted on {len(shown.hosts)} hosts" if len(shown.hosts) > 1 else f"on {disk.host}"
    if shown.alike:
        where = f"on {counted(len(shown.alike), 'host')}; the fullest is {disk.host}"
    used = f"{percent(bytes_used(disk), 1.0)} used, {size(disk.free_bytes)} of {size(disk.total_bytes)} free"
    has_inodes = disk.total_inodes is not None and disk.free_inodes is not None
    parts = (
        f"{shown.name}: {used}",
        f"{size(disk.usable_free_bytes)} of the usable share left" if shown.usable else "",
        f"{percent(inodes_used(disk), 1.0)} of inodes used" if has_inodes else "",
        "" if disk.quota is None else f"quota: {quota_sentence(disk.quota, now)}",
        "" if ends is None else f"full in {full_in(ends, now).text.rstrip('!')}{doubt(shown, ends, now)}",
        f"{disk.filesystem or 'unknown filesystem'} at {disk.mount or disk.path} {where}",
        f"read {age(now - disk.at)} ago",
    )
    return clean("; ".join(part for part in parts if part))
