"""The jobs of the queue as rows: running jobs, then waiting jobs, then the last that ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from trainmon.lib import Instant, cell_width, clean, natural_key, shorten
from trainmon.model import Job, Run, State
from tui.style import NOT_APPLICABLE, UNKNOWN, Span, pad, whole
from tui.views.jobs.status import elapsed, is_missing, job_sign, seconds_left, state_code, status_text
from tui.views.table import AGES_EVERY, Column, RowCache, Table, filtered, heads, row_cells, value, warned
from tui.widgets import Row

ENDED_SHOWN = 20
"""Ended jobs that are shown. They stay known for a day, which is too many of a large array."""

ORDER = {"running": 0, "unknown": 0, "waiting": 1, "ended": 2}
FAR = float("inf")


class QueueEntry(NamedTuple):
    """A job of the queue, with its run, its scheduler's health and its cluster."""

    job: Job
    run: str
    """The name of its run, or empty."""
    short: bool
    """Whether its time limit ends it before its run can save once more."""
    stale: bool
    """Whether its scheduler does not answer."""
    several: bool
    """Whether jobs of several clusters are shown, so that its cluster must be named."""

    def id(self, *, narrow: bool) -> str:
        """Its id as squeue writes it. A narrow table only counts the waiting tasks of an array."""
        job = self.job
        name = f"{job.array} ×{job.elements}" if narrow and job.is_waiting_array else job.id
        return clean(f"{job.cluster}/{name}" if self.several else name)


# ---- selection and order -------------------------------------------------------------------------------------------


def queue_order(job: Job, now: Instant) -> tuple[object, ...]:
    """Sort key: running jobs by their end, then waiting jobs by their start, then ended jobs, the latest first."""
    stage = 2 if job.gone_at is not None else ORDER[job.stage]
    if stage == 1:
        return stage, not job.priority, job.starts_at or FAR, -(job.priority or 0), job.submitted_at or 0.0, job.number
    end = job.ends_at or FAR if stage == 0 else -(job.ends_at or job.gone_at or 0.0)
    return stage, end, natural_key(job.id)


ORDERS: Mapping[str, Callable[[Job, Instant], tuple[object, ...]]] = {
    "state": queue_order,
    "id": lambda job, _now: (job.cluster, job.array or job.number, natural_key(job.id)),
    "name": lambda job, now: (natural_key(job.name), *queue_order(job, now)),
    "user": lambda job, now: (job.user, *queue_order(job, now)),
    "left": lambda job, now: (FAR if (seconds := seconds_left(job, now)) is None else seconds, *queue_order(job, now)),
}


def is_mine(job: Job, state: State) -> bool:
    """Whether it is the user's own job. While our user name on its cluster is not known yet, it may be."""
    cluster = state.clusters.get(job.cluster)
    return cluster is None or cluster.me is None or job.user == cluster.me


def listed_jobs(state: State, sort: str, query: str = "", *, mine: bool = False) -> list[Job]:
    """The jobs that match a filter, in this order. Only the last few ended jobs are among them."""
    runs = runs_by_job(state.runs.values())

    def searched(job: Job) -> str:
        run = runs.get(job.key)
        parts = (job.id, job.name, job.user, job.state, state_code(job), job.partition or "", " ".join(job.nodes))
        return " ".join((*parts, job.cluster, status_text(job, state.at).text, run.name if run else ""))

    found = filtered((job for job in state.jobs.values() if not mine or is_mine(job, state)), query, searched)
    found.sort(key=lambda job: queue_order(job, state.at))
    ended = [job.key for job in found if job.gone_at is not None or job.stage == "ended"]
    hidden = set(ended[ENDED_SHOWN:])
    found = [job for job in found if job.key not in hidden]
    return found if sort == "state" else sorted(found, key=lambda job: ORDERS[sort](job, state.at))


def runs_by_job(runs: Iterable[Run]) -> dict[str, Run]:
    """The run of each job that belongs to one, by the job's key."""
    return {key: run for run in runs for key in run.jobs}


# ---- columns -------------------------------------------------------------------------------------------------------


def state_cell(entry: QueueEntry, _now: Instant) -> Span:
    """Its state as squeue shows it; `?` of a job that the queue no longer lists."""
    return Span(UNKNOWN if is_missing(entry.job) else state_code(entry.job), job_sign(entry.job).style)


def left_cell(entry: QueueEntry, now: Instant) -> Span:
    """The time left, with a sign if the job ends before its run can save."""
    seconds = seconds_left(entry.job, now)
    return value(NOT_APPLICABLE + " ") if seconds is None else warned(whole(seconds), "crit" if entry.short else "")


WIDE = 84
"""From this width on, times have columns of their own. Below it, the time left stands before the reason."""

USER_WIDTH = 10
USER = Column[QueueEntry, Instant](
    "USER", USER_WIDTH, lambda entry, _: Span(shorten(clean(entry.job.user), USER_WIDTH - 1)), 50, left=True
)
PARTITION = Column[QueueEntry, Instant](
    "PART",
    10,
    lambda entry, _: Span(shorten(clean(entry.job.partition or NOT_APPLICABLE), 9), "dim"),
    100,
    left=True,
)
RESTARTS = Column[QueueEntry, Instant](
    "RST", 5,
    lambda entry, _: value(UNKNOWN if entry.job.restarts is None else str(entry.job.restarts or NOT_APPLICABLE)), 92,
)  # fmt: skip
COLUMNS: tuple[Column[QueueEntry, Instant], ...] = (
    USER,
    PARTITION,
    Column("ST", 4, state_cell, left=True),
    Column("N", 4, lambda entry, _: value(UNKNOWN if (n := entry.job.node_count) is None else str(n)), 40),
    Column(
        "TIME", 8, lambda entry, now: value(NOT_APPLICABLE if (s := elapsed(entry.job, now)) is None else whole(s)), 92
    ),
    Column("LEFT ", 8, left_cell, WIDE),
    RESTARTS,
)  # fmt: skip

QueueTable = Table[QueueEntry, Instant]


def queue_layout(width: int, entries: Sequence[QueueEntry]) -> QueueTable:
    """The columns of a width. Ids stay whole, names give way to reasons, and a column of equal values is left out."""
    users = {entry.job.user for entry in entries}
    partitions = {entry.job.partition for entry in entries}
    columns = tuple(
        column._replace(width=max(5, min(USER_WIDTH, max(map(len, users)) + 1))) if column is USER else column
        for column in COLUMNS
        if column.from_width <= width
        and (column is not USER or len(users) > 1)
        and (column is not PARTITION or len(partitions) > 1)
    )
    narrow = width < WIDE
    ids = min(max((cell_width(entry.id(narrow=narrow)) for entry in entries), default=2), 16 if narrow else 26) + 1
    names = max((cell_width(clean(entry.job.name)) for entry in entries), default=4) + 2
    space = Table(width, 2, columns, ids).rest
    return Table(width, max(6, min(names, max(2 * space // 5, 8), 32)), columns, max(3, ids))


def queue_head(table: QueueTable) -> tuple[Span, ...]:
    """The names of the columns."""
    names = f"  {'ID':<{table.id}}{'NAME':<{table.name}}{heads(table.columns)}  WHY"
    return (Span(shorten(names, table.width), "head"),)


def queue_row(entry: QueueEntry, table: QueueTable, now: Instant) -> Row:
    """One job's line. It is dim when its scheduler does not answer."""
    job, symbol, narrow = entry.job, job_sign(entry.job), table.width < WIDE
    plain = "dim" if entry.stale or job.stage == "ended" else ""
    reason, seconds = status_text(job, now), seconds_left(job, now)
    parts = (
        f"{whole(seconds)} left{'!' if entry.short else ''}" if seconds is not None and narrow else "",
        reason.text or "runs",
        clean(f"run {entry.run}") if entry.run and entry.run != job.name else "",
        f"restart {job.restarts}" if job.restarts and RESTARTS not in table.columns else "",
    )
    style = "dim" if entry.stale else "crit" if entry.short and narrow else reason.style
    space = table.rest - 2
    return Row(job.key, (
        Span(symbol.text + " ", "dim" if entry.stale else symbol.style),
        Span(pad(shorten(entry.id(narrow=narrow), table.id - 1), table.id), plain),
        Span(pad(shorten(clean(job.name), table.name - 2), table.name), plain),
        *row_cells(table.columns, entry, now, plain),
        Span("  " + shorten("; ".join(filter(None, parts)), space) if space > 3 else "", style),
    ))  # fmt: skip


def queue_rows(entries: Iterable[QueueEntry], table: QueueTable, now: Instant, cache: RowCache) -> list[Row]:
    """The rows of these jobs. Their times are redrawn at different seconds: 2,000 rows take 120 ms."""
    return cache.rows(
        (entry.job.key, (entry, table, (now + entry.job.number % AGES_EVERY) // AGES_EVERY),
         partial(queue_row, entry, table, now))
        for entry in entries
    )  # fmt: skip
