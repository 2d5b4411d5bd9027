"""The disks as rows, and one disk in full: bytes, inodes, growth, when it is full, and failures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.disks import checkpoints_that_fit, is_on, is_shared, saved_on
from trainmon.lib import (
    DAY,
    Instant,
    Seconds,
    cell_width,
    clean,
    counted,
    group_by,
    natural_key,
    short_size,
    shorten,
    shorten_middle,
    shorten_start,
    size,
)
from trainmon.model import Checkpoint, Disk, Log, Quota, Run, State
from tui.style import (
    CRIT,
    DEAD,
    NOT_APPLICABLE,
    UNKNOWN,
    WARN,
    Line,
    Link,
    Linked,
    Row,
    Span,
    age,
    bytes_used,
    count,
    duration,
    full_in,
    inodes_used,
    pad,
    percent,
)
from tui.views.alerts import Concern, alert_ranks
from tui.views.jobs import folded
from tui.views.table import (
    AGES_EVERY,
    LABEL,
    Column,
    RowCache,
    Table,
    apart,
    chosen_columns,
    fact,
    facts,
    fields_of,
    filtered,
    linked_fact,
    more_fact,
    optional_fact,
    ordered,
    row_cells,
    safe,
    value,
    warned,
    wrapped_fact,
)

# ---- the disks as rows -----------------------------------------------------------------------------------------------

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
    alike: tuple[ShownDisk, ...] = ()
    """The healthy disks of one path on several hosts that this row stands for, the fullest first."""

    @property
    def key(self) -> str:
        kind = "alike" if self.alike else "shared"
        return f"{kind}:{self.disk.cluster}:{self.disk.path}" if len(self.hosts) > 1 else self.disk.key

    @property
    def name(self) -> str:
        """`/scratch` of a shared disk, else `node07:/tmp`; `node[01-16]:/tmp` of several."""
        if self.alike:
            return clean(f"{folded(self.hosts)}:{self.disk.path}", 200)
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

    def identity(disk: Disk) -> tuple[str, ...]:
        shared = disk.state == "ok" and is_shared(disk)
        return (disk.cluster, disk.path, *((str(disk.total_bytes),) if shared else ("", disk.host)))

    found = []
    for disks in group_by(state.disks.values(), identity).values():
        latest = max(disks, key=lambda disk: disk.at)
        source = state.sources.get(f"node:{latest.host}")
        stale = state.at - latest.at > STALE_AFTER or (source is not None and source.health in ("late", "down"))
        usable = latest.path in state.usable or latest.usable_free_bytes not in (None, latest.free_bytes)
        found.append(ShownDisk(latest, tuple(sorted(disk.host for disk in disks)), usable, stale))
    return found


ALIKE_FROM = 3
"""Healthy disks of one path become one row if there are at least this many."""


def with_alike(found: Sequence[ShownDisk], state: State) -> list[ShownDisk]:
    """The disks, those with the same path on several hosts as one: with the values of the fullest, and the inodes of
    the one that has the fewest left. One that needs attention keeps its own row."""
    groups: dict[tuple[str, str], list[ShownDisk]] = {}
    concerns, rows = alert_ranks(state).disks, []
    for shown in found:
        alone = len(shown.hosts) > 1 or shown.stale or rank(shown, state.at) < HEALTHY
        if alone or concern_of(shown, concerns) is not Concern.NONE:
            rows.append(shown)
        else:
            groups.setdefault((shown.disk.cluster, shown.disk.path), []).append(shown)
    for group in groups.values():
        if len(group) < ALIKE_FROM:
            rows += group
            continue
        group.sort(key=lambda one: (-(one.used or 0.0), natural_key(one.disk.host)))
        fewest = max(group, key=lambda one: inodes_used(one.disk) or 0.0).disk
        disk = replace(group[0].disk, total_inodes=fewest.total_inodes, free_inodes=fewest.free_inodes)
        hosts = tuple(sorted((one.disk.host for one in group), key=natural_key))
        rows.append(ShownDisk(disk, hosts, group[0].usable, stale=False, alike=tuple(group)))
    return rows


def disk_of_key(key: str, state: State) -> ShownDisk | None:
    """The disk, or the disks that are alike, with the key of a row."""
    found = shown_disks(state)
    return next((one for one in (*found, *with_alike(found, state)) if one.key == key), None)


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


HEALTHY = 4


def rank(shown: ShownDisk, now: Instant) -> int:
    """0 does not answer, 1 full or soon full, 2 nearly full, 3 read-only, 4 healthy."""
    if shown.disk.state != "ok":
        return 0
    shares = (shown.used, inodes_used(shown.disk), quota_used(shown.disk.quota))
    styles = {*map(alarm, shares), full_in(shown.full_at, now).style}
    return 1 if "crit" in styles else 2 if "warn" in styles else 3 if shown.disk.read_only else HEALTHY


# ---- columns -------------------------------------------------------------------------------------------------------


def trend_cell(shown: ShownDisk, _now: Instant) -> Span:
    """The growth of a day; ~ before the rate of the last two minutes."""
    growth = shown.per_day
    if growth is None:
        return value(UNKNOWN + " ")
    mark = "~" if shown.has_only_a_rate else ""
    text = "0" if abs(growth) < 1e6 else mark + ("+" if growth > 0 else "") + short_size(growth)
    return Span(text + " ", "dim" if growth < 1e6 else "")


BAR = 12
"""Cells of the bar that shows the used share."""


def bar_cell(shown: ShownDisk, _now: Instant) -> Span:
    """The used share as a bar."""
    share = bytes_used(shown.disk)
    filled = 0 if share is None else min(BAR, max(round(share * BAR), 1 if share > 0 else 0))
    return Span("" if share is None else "  " + "■" * filled + "□" * (BAR - filled), alarm(shown.used))


def shares(read: Callable[[ShownDisk], float | None]) -> Callable[[ShownDisk, Instant], tuple[float | None]]:
    """The values of a share, in percent."""
    return lambda shown, _: (None if (share := read(shown)) is None else 100 * share,)


NO_NUMBER = value(NOT_APPLICABLE + " ")
NAMED = Column[ShownDisk, Instant]("name", lambda one, _: (one.name,))
PATH = NAMED._replace(head="PATH")
"""Above the names, which filters call `name`: they are those of paths and of hosts."""
USABLE = Column[ShownDisk, Instant](
    "usable", lambda one, _: (one.disk.usable_free_bytes,), "B", upwards=True, head="usable ", width=8,
    from_width=66,
    cell=lambda one, _: warned(short_size(one.disk.usable_free_bytes), alarm(one.used)) if one.usable else NO_NUMBER,
)  # fmt: skip
COLUMNS: tuple[Column[ShownDisk, Instant], ...] = (
    Column("type", lambda one, _: (one.disk.filesystem,), width=9, from_width=118, left=True,
           cell=lambda one, _: Span(shorten(clean(one.disk.filesystem or UNKNOWN), 8), "dim")),
    Column("", width=BAR + 2, cell=bar_cell, from_width=84, left=True),
    Column("free", lambda one, _: (one.disk.free_bytes,), "B", upwards=True, head="free ", width=8,
           cell=lambda one, _: warned(short_size(one.disk.free_bytes), "" if one.usable else alarm(one.used))),
    Column("used", shares(lambda one: bytes_used(one.disk)), "%", head="used ", width=5, from_width=46,
           cell=lambda one, _: Span(percent(bytes_used(one.disk), 1.0) + " ")),
    USABLE,
    Column("inodes", shares(lambda one: inodes_used(one.disk)), "%", head="inodes ", width=8, from_width=36,
           cell=lambda one, _: NO_NUMBER if one.disk.total_inodes is None
           else warned(percent(share := inodes_used(one.disk), 1.0), alarm(share))),
    Column("growth", lambda one, _: (one.per_day,), "B", head="per day ", width=8, cell=trend_cell, from_width=56),
    Column("full", lambda one, now: (None if one.full_at is None else one.full_at - now,), "s", upwards=True,
           head="full in ", width=9, from_width=28,
           cell=lambda one, now: Span((cell := full_in(one.full_at, now)).text.rstrip("!")
                                      + ("!" if cell.text.endswith("!") else " "), cell.style)),
)  # fmt: skip

DISK_FIELDS: tuple[Column[ShownDisk, Instant], ...] = fields_of(
    COLUMNS,
    NAMED,
    Column("path", lambda one, _: (one.disk.path,)),
    Column("node", lambda one, _: one.hosts),
    Column("status", lambda one, _: (one.disk.state, "full" if alarm(one.used) else None)),
    Column("cluster", lambda one, _: (one.disk.cluster,)),
    Column("error", lambda one, _: (one.disk.error,)),
)
"""What disks are filtered and sorted by."""

NOTE = 12
"""Cells that are kept for notes at the end of a line, where there is room at all."""


def disk_layout(
    width: int, names: Iterable[str], *, usable: bool, chosen: Sequence[str] = ()
) -> Table[ShownDisk, Instant]:
    """The columns that a person chose, else those of a width. Paths get what they need as far as there is room."""
    usual = tuple(c for c in COLUMNS if c.from_width <= width and (usable or c is not USABLE))
    columns = chosen_columns(DISK_FIELDS, chosen, width) or usual
    space = Table(width, 0, columns).rest
    longest = max((cell_width(name) for name in names), default=4) + 1
    return Table(width, max(4, min(longest, space - (NOTE if space > 30 else 0))), columns)


SIGNS = (Span(DEAD + " ", "crit"), Span(CRIT + " ", "crit"), Span(WARN + " ", "warn"), Span(WARN + " ", "warn"),
         Span("  "))  # fmt: skip
"""By rank."""


def disk_row(shown: ShownDisk, table: Table[ShownDisk, Instant], now: Instant) -> Row:
    """One disk's line."""
    stale, name = "dim" if shown.stale else "", shorten_middle(shown.name, table.name - 1)
    if shown.alike and not name.startswith(f"{folded(shown.hosts)}:"):  # gpu-[001…6] would be other hosts
        name = shorten_middle(clean(f"{len(shown.hosts)} hosts:{shown.disk.path}", 200), table.name - 1)
    spans = [SIGNS[rank(shown, now)], Span(pad(name, table.name), stale)]
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

ALERT_RANKS = {Concern.CRITICAL: 1, Concern.WARNING: 2, Concern.PENDING: 3, Concern.NONE: 4}
"""The rank of a disk with an alert, if its own rank is not worse."""


def concern_of(shown: ShownDisk, alerts: Mapping[str, Concern]) -> Concern:
    """The worst alert of a row, by the alerts of each Disk.key."""
    return min(alerts.get(key, Concern.NONE) for key in shown.subjects)


def ordered_disks(state: State, sort: str, query: str = "") -> list[ShownDisk]:
    """The disks that match a filter, by a field, else by their severity, which alerts and numbers determine."""
    found, alerts = filtered(shown_disks(state), query, DISK_FIELDS, state.at), alert_ranks(state).disks
    if not query:
        found = with_alike(found, state)

    def order(shown: ShownDisk) -> tuple[object, ...]:
        return min(rank(shown, state.at), ALERT_RANKS[concern_of(shown, alerts)]), natural_key(shown.name)

    return ordered(sorted(found, key=order), sort, DISK_FIELDS, state.at)


# ---- one disk in full, as lines --------------------------------------------------------------------------------------

SHOWN = 20
"""Runs, and checkpoints, that are listed."""


def disk_lines(shown: ShownDisk | None, state: State, width: int) -> Iterator[Line | Linked]:
    """Everything known of one disk."""
    if shown is None:
        yield (Span("This disk is no longer watched.", "dim"),)
        return
    if shown.alike:
        yield (Span(f"{shown.disk.path} on {counted(len(shown.alike), 'host')}, the fullest first", "dim"),)
        for one in shown.alike:
            used = f"{percent(bytes_used(one.disk), 1.0):>4} used, {short_size(one.disk.free_bytes)} free"
            inodes = "" if one.disk.total_inodes is None else f", {percent(inodes_used(one.disk), 1.0)} of inodes used"
            yield linked_fact(shorten_middle(one.disk.host, LABEL - 3), Link("disk", one.key), used + inodes, width)
        return
    yield from apart(space(shown, state, width), writers(shown, state, width), deletable(shown, state, width))


def space(shown: ShownDisk, state: State, width: int) -> Iterator[Line]:
    """The size, what is used, the growth, and when it is full."""
    disk, now = shown.disk, state.at
    where = f"{len(shown.hosts)} hosts" if len(shown.hosts) > 1 else disk.host
    if disk.state != "ok":
        yield from optional_fact("problem", unanswered(disk, now), width, "crit")
    texts = {
        "mounted": clean(f"{disk.filesystem or 'unknown filesystem'} at {disk.mount or disk.path} on {where}"),
        "space": None
        if disk.total_bytes is None
        else f"{percent(bytes_used(disk), 1.0)} used: {size(disk.free_bytes)} of {size(disk.total_bytes)} free",
        "usable": f"{size(disk.usable_free_bytes)} until the usable share is used" if shown.usable else None,
        "inodes": None
        if disk.total_inodes is None
        else f"{percent(inodes_used(disk), 1.0)} used: {count(disk.free_inodes)} of {count(disk.total_inodes)} free",
    }
    yield from facts(texts, width)
    if disk.quota is not None:
        yield from wrapped_fact("quota", clean(quota_sentence(disk.quota, now)), width)
    if disk.total_bytes is None:  # what was read before its problem says nothing about now
        return
    growth = shown.per_day
    base = ", from the last two minutes" if shown.has_only_a_rate else ""
    text = "not known yet" if growth is None else f"{'+' if growth > 0 else ''}{size(growth)}{base}"
    yield fact("per day", text, width)
    ends = shown.full_at or disk.full_at
    left = disk.usable_free_bytes
    if ends is None and shown.has_only_a_rate and growth and growth > 0 and left is not None:
        yield fact("full in", f"{full_in(now + DAY * left / growth, now).text.rstrip('!')} at this rate", width)
    elif ends is None:
        yield fact("full in", "not known yet" if disk.forecast is None else "not at its present growth", width, "dim")
    else:
        text, style = full_in(ends, now)
        yield from wrapped_fact("full in", clean(f"{text.rstrip('!')}{doubt(shown, ends, now)}"), width, style)
    note = notes(shown, now)
    yield from optional_fact("note", note.text, width, note.style)


def writers(shown: ShownDisk, state: State, width: int) -> Iterator[Line | Linked]:
    """The runs that write here: checkpoints and logs, with their sizes and how fast they come."""
    yield (Span("runs writing here", "dim"),)
    disk, found = shown.disk, list[tuple[int, Run, str]]()
    for run in state.runs.values():
        saved, log, parts, total = run.checkpoints, run.log, list[str](), 0
        if saved is not None and is_on(disk, saved.path, saved.host, state.disks):
            total = sum(one.bytes or 0 for one in saved.list)
            pace = f", {size(saved.bytes)} every {duration(saved.every_s)}" if saved.every_s and saved.bytes else ""
            parts.append(f"{counted(len(saved.list), 'checkpoint')} {size(total)}{pace}")
        if log is not None and log.path is not None and is_on(disk, log.path, log.host, state.disks):
            total += log.size or 0
            parts.append(f"log {size(log.size)}{log_growth(log)}")
        if parts:
            found.append((total, run, "; ".join(parts)))
    if not found:
        yield (Span("None of the watched runs saves checkpoints or logs here.", "dim"),)
    longest = max((len(run.name) for _, run, _ in found), default=0)
    for _, run, text in sorted(found, key=lambda one: -one[0])[:SHOWN]:
        yield linked_fact("run", Link("run", run.name), f"{run.name:<{longest}}  {text}", width)
    yield from more_fact(len(found) - SHOWN, width)
    fitting = checkpoints_that_fit(disk, state.disks, state.runs.values())
    if fitting is not None:
        text = f"{counted(fitting, 'checkpoint')} of the largest size"
        yield fact("room for", text, width, "" if fitting > 1 else "warn")


def log_growth(log: Log) -> str:
    """`, 4.1M/day`: by its lines per second, and the usual length of a line."""
    if not log.lines_per_s or not log.lines:
        return ""
    return f", {size(DAY * log.lines_per_s * sum(len(line) + 1 for line in log.lines) / len(log.lines))}/day"


# ---- what could be deleted ---------------------------------------------------------------------------------------


def deletable(shown: ShownDisk, state: State, width: int) -> Iterator[Line]:
    """The checkpoints that no restart needs, the oldest first. trainmon-tui deletes nothing."""
    found = spares(shown, state)
    yield (Span("what could be deleted; trainmon-tui deletes nothing", "dim"),)
    if not found:
        saves = any(run.checkpoints.list for run in saved_on(shown.disk, state.disks, state.runs.values())
                    if run.checkpoints is not None)  # fmt: skip
        text = "each has only the checkpoint that a restart needs" if saves else "none of them has a checkpoint here"
        yield (Span(f"Nothing of the watched runs: {text}.", "dim"),)
        return
    total = sum(one.bytes or 0 for _, one in found)
    text = (
        f"{counted(len(found), 'checkpoint')}, {size(total)}: no restart needs {'it' if len(found) == 1 else 'them'}."
    )
    yield from wrapped_fact("in total", text, width)
    for run, one in found[:SHOWN]:
        yield spare_line(run, one, state.at, width)
    yield from more_fact(len(found) - SHOWN, width)


def spares(shown: ShownDisk, state: State) -> list[tuple[Run, Checkpoint]]:
    """The checkpoints on a disk that no restart of any run needs, the oldest first."""
    saved = [run.checkpoints for run in state.runs.values() if run.checkpoints is not None]
    needed = {path for one in saved for path in (one.resumes, one.committed and one.committed.path)}
    runs = saved_on(shown.disk, state.disks, state.runs.values())
    found = {one.path: (run, one) for run in runs for one in spare(run) if one.path not in needed}
    return sorted(found.values(), key=lambda pair: pair[1].at or 0.0)


def spare_line(run: Run, one: Checkpoint, now: Instant, width: int) -> Line:
    """`llm-7b        …/ckpt/step-1000   1.8T  2h old`."""
    about = f"{short_size(one.bytes):>5}  {age(now - one.at) if one.at else UNKNOWN:>3} old"
    about += f"  incomplete: {clean(one.why)}" if one.state == "torn" else ""
    path = shorten_start(safe(one.path), max(12, width - LABEL - len(about) - 3))
    return fact(shorten_middle(clean(run.name), LABEL - 1), f"{path}  {about}", width)


def spare(run: Run) -> Sequence[Checkpoint]:
    """The superseded and incomplete checkpoints of a run. Without a committed one, nothing is spare."""
    saved = run.checkpoints
    if saved is None or saved.committed is None or saved.error is not None:
        return ()
    return [one for one in saved.list if one.state in ("superseded", "torn")]
