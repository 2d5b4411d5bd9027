"""The users that hold GPUs, or their jobs, as rows; and the fields of these tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.analysis.gpus import Holder
from trainmon.lib import cell_width, clean, counted, shorten, shorten_middle
from trainmon.model import State
from tui.style import NOT_APPLICABLE, WARN, Row, Span, mib, pad
from tui.views.jobs import folded
from tui.views.table import Column, Table, chosen_columns, fields_of, heads, row_cells, value

USER = "user:"
"""Before the key of the row of a user. That of a job is the key of the job."""


def number(count: int | None) -> Span:
    """A number of GPUs; `-` where none of their nodes is read."""
    return value(NOT_APPLICABLE if count is None else str(count))


OWNER = Column[Holder, State](
    "user", lambda one, state: (one.user, "me" if one.user == state.clusters[one.cluster].me else None)
    if one.cluster in state.clusters else (one.user,), head="USER", width=11, left=True, from_width=56,
    cell=lambda one, _: Span(shorten(clean(one.user), 10)),
)  # fmt: skip
JOB = Column[Holder, State]("job", lambda one, _: [text for job in one.jobs for text in (job.id, job.name)], head="JOB")
JOBS = Column[Holder, State](
    "jobs", lambda one, _: (len(one.jobs),), "", head="JOBS", width=6, from_width=44,
    cell=lambda one, _: number(len(one.jobs) or None),
)  # fmt: skip
COLUMNS: tuple[Column[Holder, State], ...] = (
    Column("gpus", lambda one, _: (one.held,), "", head="GPUS", width=6, cell=lambda one, _: number(one.held)),
    Column("busy", lambda one, _: (one.busy,), "", head="BUSY", width=6, cell=lambda one, _: number(one.busy)),
    Column("idle", lambda one, _: (one.idle,), "", head="IDLE", width=6, from_width=36,
           cell=lambda one, _: number(one.idle)),
    Column("mem", lambda one, _: (None if (used := one.memory_mib) is None else used / 1024,), "GiB", head="MEM",
           width=7, from_width=50,
           cell=lambda one, _: value(NOT_APPLICABLE if (used := one.memory_mib) is None else mib(used))),
)  # fmt: skip
USER_FIELDS = fields_of((JOBS, *COLUMNS), OWNER, JOB, Column("node", lambda one, _: one.nodes))
JOB_FIELDS = fields_of((OWNER, *COLUMNS), JOB, Column("node", lambda one, _: one.nodes))
"""What the rows of users and of jobs are filtered and sorted by."""


def note(one: Holder) -> str:
    """That no job of it is known, and how many of its GPUs have no known load."""
    is_partly = one.measured < one.held
    by = "" if one.jobs else " by processes"
    return by + (f"; load of {one.measured} of {counted(one.held, 'GPU')} known" if is_partly else "")


def holder_rows(
    found: Sequence[Holder], state: State, width: int, sort: str, chosen: Sequence[str], *, by_job: bool
) -> tuple[Span, list[Row]]:
    """The head, and a line for each; what holds GPUs and uses none of them has a sign."""
    names = [clean(f"{one.jobs[0].id}  {one.jobs[0].name}" if by_job else one.user) for one in found]
    first, fields = (OWNER, JOB_FIELDS) if by_job else (JOBS, USER_FIELDS)
    usual = tuple(column for column in (first, *COLUMNS) if column.from_width <= width)
    longest = max((4, *map(cell_width, names))) + 2
    table = Table(width, min(longest, max(10, width // 3)), chosen_columns(fields, chosen, width) or usual)
    rows = [
        Row(one.jobs[0].key if by_job else f"{USER}{one.cluster}/{one.user}", (
            Span(WARN + " ", "warn") if one.is_idle else Span("  "),
            Span(pad(shorten_middle(name, table.name - 2), table.name)),
            *row_cells(table.columns, one, state),
            Span(shorten(f"  {clean(folded(one.nodes))}{note(one)}", table.rest), "dim"),
        ))
        for one, name in zip(found, names, strict=True)
    ]  # fmt: skip
    return Span(f"  {(JOB if by_job else OWNER).headed(sort):<{table.name}}{heads(table.columns, sort)}", "head"), rows
