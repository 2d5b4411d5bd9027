"""The jobs of the queue as rows: those that run, those that wait, those that ended lately. Pure, but for kept rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, cell_width, clean, natural_key, shorten
from trainmon.model import Job, Run, State
from tui.style import NOT_APPLICABLE, UNKNOWN, Span, pad, whole
from tui.views.jobs.words import code, is_left_behind, left, sign, spent, why
from tui.widgets import Row

ENDED_SHOWN = 20
"""Jobs that ended stay known for a day; of a big array that is more than anybody reads."""

ORDER = {"running": 0, "unknown": 0, "waiting": 1, "ended": 2}
FAR = float("inf")


class QueueEntry(NamedTuple):
    """A job of the queue, with what the rest of the state says of it."""

    job: Job
    run: str
    """The name of the run that it belongs to, else empty."""
    short: bool
    """Whether it ends before its run could save once more."""
    stale: bool
    """Whether its scheduler does not answer now."""
    several: bool
    """Whether there are several clusters, and its own must be named."""

    def id(self, *, narrow: bool) -> str:
        """As squeue writes it; where there is little room, of the waiting elements of an array only how many."""
        job = self.job
        name = f"{job.array} ×{job.elements}" if narrow and job.is_waiting_array else job.id
        return clean(f"{job.cluster}/{name}" if self.several else name)


# ---- which, in which order -----------------------------------------------------------------------------------------


def place(job: Job, now: Instant) -> tuple[object, ...]:
    """Those that run, the next to end first; those that wait as they will start; those that ended, the last first."""
    stage = 2 if job.gone_at is not None else ORDER[job.stage]
    if stage == 0:
        return stage, job.ends_at or FAR, natural_key(job.id)
    if stage == 1:
        return stage, not job.priority, job.starts_at or FAR, -(job.priority or 0), job.submitted_at or 0.0, job.number
    return stage, -(job.ends_at or job.gone_at or 0.0), natural_key(job.id)


ORDERS: Mapping[str, Callable[[Job, Instant], tuple[object, ...]]] = {
    "state": place,
    "id": lambda job, _now: (job.cluster, job.array or job.number, natural_key(job.id)),
    "name": lambda job, now: (natural_key(job.name), *place(job, now)),
    "user": lambda job, now: (job.user, *place(job, now)),
    "left": lambda job, now: (_or_far(left(job, now)), *place(job, now)),
}


def _or_far(seconds: Seconds | None) -> float:
    return FAR if seconds is None else seconds


def is_mine(job: Job, state: State) -> bool:
    """Whether it is our own job; where nobody has said yet who we are there, it may be."""
    cluster = state.clusters.get(job.cluster)
    return cluster is None or cluster.me is None or job.user == cluster.me


def chosen(state: State, sort: str, wanted: str = "", *, mine: bool = False) -> list[Job]:
    """The jobs that match, in the order asked for; of those that ended only the last few."""
    words = wanted.lower().split()
    runs = run_of(state.runs.values())
    found = [
        job
        for job in state.jobs.values()
        if (not mine or is_mine(job, state))
        and (not words or all(word in haystack(job, runs, state.at) for word in words))
    ]
    found.sort(key=lambda job: place(job, state.at))
    over = [job.key for job in found if job.gone_at is not None or job.stage == "ended"]
    hidden = set(over[ENDED_SHOWN:])
    found = [job for job in found if job.key not in hidden]
    return found if sort == "state" else sorted(found, key=lambda job: ORDERS[sort](job, state.at))


def haystack(job: Job, runs: Mapping[str, Run], now: Instant) -> str:
    """What `/` looks through."""
    run = runs.get(job.key)
    parts = (job.id, job.name, job.user, job.state, code(job), job.partition or "", " ".join(job.nodes))
    return " ".join((*parts, job.cluster, why(job, now).text, run.name if run else "")).lower()


def run_of(runs: Iterable[Run]) -> dict[str, Run]:
    """The run of each job that has one, by the job's key."""
    return {key: run for run in runs for key in run.jobs}


# ---- columns -------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column: its head, its width, the narrowest pane that has it, and whether it stands at its right."""

    name: str
    width: int
    from_width: int
    cell: Callable[[QueueEntry, Instant], Span]
    right: bool = False


def _user(entry: QueueEntry, _now: Instant) -> Span:
    return Span(shorten(clean(entry.job.user), USER.width - 1))


def _code(entry: QueueEntry, _now: Instant) -> Span:
    return Span(UNKNOWN if is_left_behind(entry.job) else code(entry.job), sign(entry.job).style)


def _count(entry: QueueEntry, _now: Instant) -> Span:
    nodes = entry.job.node_count
    return Span(UNKNOWN, "dim") if nodes is None else Span(str(nodes))


def _partition(entry: QueueEntry, _now: Instant) -> Span:
    return Span(shorten(clean(entry.job.partition or NOT_APPLICABLE), 9), "dim")


def _time(entry: QueueEntry, now: Instant) -> Span:
    seconds = spent(entry.job, now)
    return Span(NOT_APPLICABLE, "dim") if seconds is None else Span(whole(seconds))


def _left(entry: QueueEntry, now: Instant) -> Span:
    seconds = left(entry.job, now)
    if seconds is None:
        return Span(NOT_APPLICABLE + " ", "dim")
    return Span(whole(seconds) + ("!" if entry.short else " "), "crit" if entry.short else "")


def _restarts(entry: QueueEntry, _now: Instant) -> Span:
    restarts = entry.job.restarts
    return Span(str(restarts)) if restarts else Span(UNKNOWN if restarts is None else NOT_APPLICABLE, "dim")


ROOMY = 84
"""From this width on, times have columns of their own; below, what is left stands before why."""

USER = Column("USER", 10, 50, _user)
PARTITION = Column("PART", 10, 100, _partition)
RESTARTS = Column("RST", 5, 92, _restarts, right=True)
COLUMNS = (
    USER,
    PARTITION,
    Column("ST", 4, 0, _code),
    Column("N", 4, 40, _count, right=True),
    Column("TIME", 8, 92, _time, right=True),
    Column("LEFT ", 8, ROOMY, _left, right=True),
    RESTARTS,
)


class QueueLayout(NamedTuple):
    """The columns that a width has, and the cells of the id and the name before them."""

    width: int
    id: int
    name: int
    columns: tuple[Column, ...]

    @property
    def rest(self) -> int:
        """Cells left for why."""
        return self.width - 2 - self.id - self.name - sum(column.width for column in self.columns) - 2


def layout(width: int, entries: Sequence[QueueEntry]) -> QueueLayout:
    """Ids keep their digits; names give way to why; columns in which all are the same are left out."""
    users = {entry.job.user for entry in entries}
    parts = {entry.job.partition for entry in entries}
    columns = tuple(
        column
        for column in COLUMNS
        if column.from_width <= width
        and (column is not USER or len(users) > 1)
        and (column is not PARTITION or len(parts) > 1)
    )
    columns = tuple(
        column._replace(width=max(5, min(10, max(map(len, users)) + 1))) if column is USER else column
        for column in columns
    )
    narrow = width < ROOMY
    ids = min(max((cell_width(entry.id(narrow=narrow)) for entry in entries), default=2), 16 if narrow else 26) + 1
    names = max((cell_width(clean(entry.job.name)) for entry in entries), default=4) + 2
    room = width - 2 - ids - sum(column.width for column in columns) - 2
    return QueueLayout(width, max(3, ids), max(6, min(names, max(2 * room // 5, 8), 32)), columns)


def head(shape: QueueLayout) -> tuple[Span, ...]:
    """The names of the columns, over their values."""
    names = "".join(
        column.name.rjust(column.width) if column.right else column.name.ljust(column.width) for column in shape.columns
    )
    return (Span(shorten(f"  {'ID':<{shape.id}}{'NAME':<{shape.name}}{names}  WHY", shape.width), "head"),)


def row(entry: QueueEntry, shape: QueueLayout, now: Instant) -> Row:
    """One job's line; dim where its scheduler does not answer."""
    job, found = entry.job, sign(entry.job)
    over = job.stage == "ended"
    plain = "dim" if entry.stale or over else ""
    spans = [
        Span(found.text + " ", "dim" if entry.stale else found.style),
        Span(pad(shorten(entry.id(narrow=shape.width < ROOMY), shape.id - 1), shape.id), plain),
        Span(pad(shorten(clean(job.name), shape.name - 2), shape.name), plain),
    ]
    for column in shape.columns:
        text, style = column.cell(entry, now)
        blank = " " * (column.width - cell_width(text))
        spans.append(Span(blank + text if column.right else text + blank, plain or style))
    words = why(job, now)
    text = "; ".join([*first(entry, shape, now), words.text or "runs", *more(entry, shape)])
    style = "crit" if entry.short and shape.width < ROOMY else words.style
    spans.append(Span("  " + shorten(text, shape.rest) if shape.rest > 3 else "", "dim" if entry.stale else style))
    return Row(job.key, tuple(spans))


def first(entry: QueueEntry, shape: QueueLayout, now: Instant) -> Iterable[str]:
    """What is left of a job's time, where that has no column."""
    seconds = left(entry.job, now)
    if seconds is not None and shape.width < ROOMY:
        yield f"{whole(seconds)} left{'!' if entry.short else ''}"


def more(entry: QueueEntry, shape: QueueLayout) -> Iterable[str]:
    """What else there is to say at the end of the line."""
    if entry.run and entry.run != entry.job.name:
        yield clean(f"run {entry.run}")
    if entry.job.restarts and RESTARTS not in shape.columns:
        yield f"restart {entry.job.restarts}"


class QueueRows:
    """Rows of jobs; one that did not change keeps the row it had. Only times move, and those coarsely."""

    TIMES_EVERY: Seconds = 10.0

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[object, ...], Row]] = {}

    def rows(self, entries: Sequence[QueueEntry], shape: QueueLayout, now: Instant) -> list[Row]:
        kept, self._kept = self._kept, {}
        for entry in entries:
            phase = entry.job.number % self.TIMES_EVERY  # not all in one second: 2,000 rows take 120 ms
            because = (entry, shape, (now + phase) // self.TIMES_EVERY)
            old = kept.get(entry.job.key)
            same = old is not None and old[0] == because
            self._kept[entry.job.key] = old if same and old is not None else (because, row(entry, shape, now))
        return [self._kept[entry.job.key][1] for entry in entries]
