"""`1 Runs`: one line a run, the worst verdict first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import ClassVar

from trainmon.analysis.runs import needed_to_save
from trainmon.lib import Instant, cell_width, clean, shorten
from trainmon.model import Job, Run, State
from tui.panes.base import Pane
from tui.style import VERDICTS, Span, calm_age, count, eta, pad, real, short, whole
from tui.views import GOING, RANK, Kind, verdict_style
from tui.views import overdue as save_overdue
from tui.views.alerts import marked, marks
from tui.views.jobs import clusters, left, short_wait
from tui.views.table import Column, Table, filtered, heads, row_cells
from tui.widgets import Row

EMPTY = (
    ("No run is watched yet. Name one in trainmon.toml:", ""),
    ("", ""),
    ("    [[run]]", "dim"),
    ('    name = "llm-7b"', "dim"),
    ('    log  = "/scratch/llm-7b/logs/*.out"', "dim"),
)


class RunsPane(Pane):
    """The runs. The log and the details of the selected run are shown in other panes."""

    NUMBER = "1"
    NAME = "Runs"
    SORTS = ("worst", "name", "last", "step")
    KIND: ClassVar[Kind | None] = "run"

    def draw(self, state: State, width: int) -> None:
        if not state.runs:
            self.head()
            self.caption()
            self.say(*EMPTY)
            return
        shown = ordered(state, self.sort, self.filter)
        table = layout(width, shown, state)
        self.head(Span(head(table), "head"))
        alerts = marks(state).runs
        self.lines.set_rows([marked(row(run, state, table), alerts.get(run.name)) for run in shown])
        if not shown:
            self.say((f"No run matches “{self.filter}”. Esc shows all.", "dim"))
        self.caption(right=f"{len(shown)} of {len(state.runs)}" if len(shown) != len(state.runs) else f"{len(shown)}")

    def footnote(self, state: State) -> tuple[str, str] | None:
        """Why the selected run has its verdict."""
        run = state.runs.get(self.selected or "")
        return None if run is None else (clean(f"{run.name}: {run.verdict}, {run.why}"), verdict_style(run.verdict))


def ordered(state: State, sort: str, wanted: str = "") -> list[Run]:
    """The runs that match a filter, in this order, then by name."""
    orders: dict[str, Callable[[Run], tuple[float | str, str]]] = {
        "worst": lambda run: (RANK[run.verdict], run.name),
        "name": lambda run: (run.name, ""),
        "last": lambda run: (-(run.progress.at or 0.0), run.name),
        "step": lambda run: (-(run.progress.step or 0), run.name),
    }
    found = filtered(state.runs.values(), wanted, searched)
    return sorted(found, key=orders[sort])


def searched(run: Run) -> str:
    """The text that the filter searches."""
    return f"{run.name} {run.verdict} {run.spec.cluster} {' '.join(run.spec.nodes)} {run.why}"


RunTable = Table[Run, State]


def layout(width: int, runs: Iterable[Run], state: State) -> RunTable:
    """The columns of a width. Jobs and checkpoints have one where there are any. Names keep their room."""
    runs = tuple(runs)
    columns = list(COLUMNS)
    if not any(run.jobs for run in runs) and not clusters(state):
        columns.remove(JOB)
    else:
        longest = max((cell_width(JOB.cell(run, state).text) for run in runs), default=1)
        columns[0] = JOB._replace(width=min(max(longest, 3), JOB.width) + 1)
    if not any(run.checkpoints or run.spec.checkpoints for run in runs):
        columns.remove(CHECKPOINT)
    steps = max((cell_width(STEP.cell(run, state).text) for run in runs), default=4)
    columns[columns.index(STEP)] = STEP._replace(width=max(4, steps) + 2)
    wanted = min(max((cell_width(clean(run.name)) + 1 for run in runs), default=6), NAME)
    for name in GIVE_WAY:
        if Table(width, 0, tuple(columns)).rest >= max(wanted, 6):
            break
        columns = [column for column in columns if column.name != name]
    return Table(width, max(1, Table(width, 0, tuple(columns)).rest), tuple(columns))


def head(table: RunTable) -> str:
    return "  " + "RUN".ljust(table.name) + heads(table.columns)


def row(run: Run, state: State, table: RunTable) -> Row:
    """One run as one line."""
    symbol, look = VERDICTS[run.verdict]
    name = pad(shorten(clean(run.name), table.name - 1), table.name)
    columns = table.columns
    if LAST in columns and LEFT in columns and waiting(run, state) is not None:
        # the reason to wait takes the room of the last step's age, which does not matter then
        wide = LEFT._replace(width=LEFT.width + LAST.width)
        columns = tuple(wide if column is LEFT else column for column in columns if column is not LAST)
    values = row_cells(columns, run, state)
    if is_stale(run, state):
        values = [Span(text, verdict_style or "dim") for text, verdict_style in values]
    return Row(run.name, (Span(symbol + " ", look), Span(name, "bold" if look in {"crit", "warn"} else ""), *values))


def waiting(run: Run, state: State) -> Job | None:
    """The job that a queued run waits for."""
    jobs = (state.jobs.get(key) for key in run.jobs) if run.verdict == "queued" else ()
    return next((job for job in jobs if job is not None and job.stage == "waiting" and job.gone_at is None), None)


def is_stale(run: Run, state: State) -> bool:
    """Whether the source of its numbers does not answer, so that they are old."""
    if run.log is None:
        return False
    source = state.sources.get(f"node:{run.log.host}")
    return source is not None and source.health in {"late", "down"}


def overdue(run: Run, now: Instant) -> bool:
    """Whether the next step is late: after three times the usual step time, or after the configured `stall_after`."""
    progress = run.progress
    if progress.at is None or run.verdict in {"finished", "stopped", "queued", "idle"}:
        return False
    usual = 3 * progress.cadence_s if progress.cadence_s else run.spec.stall_after
    return now - progress.at > max(usual, 10.0)


def _step(run: Run, state: State) -> Span:
    step = run.progress.step
    return Span("?", "dim") if step is None else Span(count(step))


def _loss(run: Run, state: State) -> Span:
    loss = run.progress.loss
    if loss is None:
        return Span("? " if run.progress.step is None else "- ", "dim")
    if not math.isfinite(loss):
        return Span(real(loss) + "!", "crit")
    return Span(real(loss) + " ")


def _rate(run: Run, state: State) -> Span:
    progress = run.progress
    if progress.tokens_per_s is not None:
        return Span(short(progress.tokens_per_s))
    if progress.samples_per_s is not None:
        return Span(f"{short(progress.samples_per_s)}sa")
    return Span("-", "dim")


def _last(run: Run, state: State) -> Span:
    if run.progress.at is None:
        return Span("- ", "dim")
    late = overdue(run, state.at)
    return Span(calm_age(state.at - run.progress.at) + ("!" if late else " "), "warn" if late else "")


def _left(run: Run, state: State) -> Span:
    """The time to the last step, or to the end of its job if that is earlier; else its verdict or why it waits."""
    waits, now = waiting(run, state), state.at
    if waits is not None:
        return Span(short_wait(waits, now), verdict_style(run.verdict))
    if run.verdict not in GOING:
        return Span(run.verdict, verdict_style(run.verdict))
    job = state.jobs.get(run.job or "")
    seconds = None if job is None else left(job, now)
    if seconds is not None and (run.eta_at is None or seconds < run.eta_at - now):
        needed = needed_to_save(run)
        short_of_it = needed is not None and seconds < needed
        return Span(f"job {whole(seconds)}{'!' if short_of_it else ''}", "crit" if short_of_it else "")
    if run.eta_at is None:
        return Span("-" if run.progress.target_step is None else "?", "dim")
    return Span(eta(run.eta_at, now))


def _job(run: Run, state: State) -> Span:
    """`418190+2`: the id of its job, and the number of jobs queued behind it."""
    if run.job is None:
        return Span("-", "dim")
    job = state.jobs.get(run.job or "")
    name = run.job.partition("/")[2] if job is None else str(job.array) if job.is_waiting_array else job.id
    over = job is None or job.gone_at is not None or job.stage == "ended"
    return Span(clean(name) + (f"+{run.queued_behind}" if run.queued_behind else ""), "dim" if over else "")


def _checkpoint(run: Run, state: State) -> Span:
    """The age of the last committed checkpoint."""
    found, now = run.checkpoints, state.at
    if found is None:
        return Span("? " if run.spec.checkpoints else "- ", "dim")
    last = found.committed
    if last is None or last.at is None:
        return Span("none!" if found.problem else "? " if found.error else "- ", "crit" if found.problem else "dim")
    if found.problem is not None:
        return Span(calm_age(now - last.at) + "!", "crit")
    late = save_overdue(found, now) and run.verdict in GOING
    return Span(calm_age(now - last.at) + ("!" if late else " "), "warn" if late else "")


def _switches(run: Run, state: State) -> Span:
    kill = run.kill is not None and run.kill.exists
    save = run.save is not None and run.save.exists
    if kill or save:
        return Span("K+S" if kill and save else "KILL" if kill else "SAVE", "crit" if kill else "warn")
    known = [switch.exists for switch in (run.kill, run.save) if switch is not None]
    return Span("?" if None in known else "-", "dim")


JOB = Column[Run, State]("JOB", 13, _job)
STEP = Column[Run, State]("STEP", 9, _step)
LAST = Column[Run, State]("LAST ", 6, _last)
CHECKPOINT = Column[Run, State]("CK ", 6, _checkpoint)
LEFT = Column[Run, State]("LEFT", 11, _left)

COLUMNS: tuple[Column[Run, State], ...] = (
    JOB,
    Column("N", 4, lambda run, _: Span(str(len(run.spec.nodes) or "-"))),
    STEP,
    Column("LOSS ", 8, _loss),
    Column("TOK/S", 7, _rate),
    CHECKPOINT,
    LAST,
    LEFT,
    Column("SW", 5, _switches),
)

GIVE_WAY = ("N", "TOK/S", "CK ", "JOB", "SW", "LEFT", "LOSS ", "LAST ")
"""Columns by the order in which they are left out of a narrow pane."""

NAME = 12
"""Cells of a name before columns are left out for it."""
