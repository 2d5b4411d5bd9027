"""`1 Runs`: is my training alive? One line a run, the one that needs a person most first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from trainmon.analysis.runs import needed_to_save
from trainmon.lib import Instant, cell_width, clean, shorten
from trainmon.model import Job, Run, State
from tui.panes.base import Pane
from tui.style import VERDICTS, Span, calm_age, count, eta, real, short, whole
from tui.views import GOING, RANK, Kind, style
from tui.views import overdue as save_overdue
from tui.views.alerts import marked
from tui.views.alerts.marks import marks
from tui.views.jobs import clusters, left, short_wait
from tui.widgets import Row

EMPTY = (
    ("No run is watched yet. Name one in trainmon.toml:", ""),
    ("", ""),
    ("    [[run]]", "dim"),
    ('    name = "llm-7b"', "dim"),
    ('    log  = "/scratch/llm-7b/logs/*.out"', "dim"),
)


class Column(NamedTuple):
    """A column: its head, its width, and what it says of a run."""

    name: str
    width: int
    cell: Callable[[Run, State, Instant], Span]


class RunsPane(Pane):
    """The runs; the selected one's log and detail are shown beside it."""

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
        shape = layout(width, shown, state)
        self.head(Span(head(shape), "head"))
        alerts = marks(state).runs
        self.lines.set_rows([marked(row(run, state, state.at, shape), alerts.get(run.name)) for run in shown])
        if not shown:
            self.say((f"No run matches “{self.filter}”. Esc shows all.", "dim"))
        self.caption(right=f"{len(shown)} of {len(state.runs)}" if len(shown) != len(state.runs) else f"{len(shown)}")
        self.say_why()

    def say_why(self) -> None:
        """Why the selected run has its verdict, in the frame's bottom."""
        run = None if self.state is None else self.state.runs.get(self.selected or "")
        if run is not None:
            self.foot(clean(f"{run.name}: {run.verdict}, {run.why}"), style(run.verdict))


def ordered(state: State, sort: str, text: str = "") -> list[Run]:
    """The runs that match, in the order asked for; names settle what is equal."""
    orders: dict[str, Callable[[Run], tuple[float | str, str]]] = {
        "worst": lambda run: (RANK[run.verdict], run.name),
        "name": lambda run: (run.name, ""),
        "last": lambda run: (-(run.progress.at or 0.0), run.name),
        "step": lambda run: (-(run.progress.step or 0), run.name),
    }
    words = text.lower().split()
    matching = [run for run in state.runs.values() if all(word in haystack(run) for word in words)]
    return sorted(matching, key=orders[sort])


def haystack(run: Run) -> str:
    """What `/` looks through."""
    return f"{run.name} {run.verdict} {run.spec.cluster} {' '.join(run.spec.nodes)} {run.why}".lower()


class Layout(NamedTuple):
    """The columns that a width has for these runs, and the cells left for their names."""

    name: int
    columns: tuple[Column, ...]


def layout(width: int, runs: Iterable[Run], state: State) -> Layout:
    """Jobs and checkpoints have a column where there are any; names keep their room, and what says least goes first."""
    runs = tuple(runs)
    columns = list(COLUMNS)
    if not any(run.jobs for run in runs) and not clusters(state):
        columns.remove(JOB)
    else:
        longest = max((cell_width(JOB.cell(run, state, state.at).text) for run in runs), default=1)
        columns[0] = JOB._replace(width=min(max(longest, 3), JOB.width) + 1)
    if not any(run.checkpoints or run.spec.checkpoints for run in runs):
        columns.remove(CHECKPOINT)
    steps = max((cell_width(STEP.cell(run, state, state.at).text) for run in runs), default=4)
    columns[columns.index(STEP)] = STEP._replace(width=max(4, steps) + 2)
    wanted = min(max((cell_width(clean(run.name)) + 1 for run in runs), default=6), NAME)
    for name in GIVE_WAY:
        if _room(width, columns) >= max(wanted, 6):
            break
        columns = [column for column in columns if column.name != name]
    return Layout(max(1, _room(width, columns)), tuple(columns))


def _room(width: int, columns: Iterable[Column]) -> int:
    return width - 2 - sum(column.width for column in columns)


def head(shape: Layout) -> str:
    return "  " + "RUN".ljust(shape.name) + "".join(column.name.rjust(column.width) for column in shape.columns)


def row(run: Run, state: State, now: Instant, shape: Layout) -> Row:
    """One run as one line."""
    symbol, look = VERDICTS[run.verdict]
    name = shorten(clean(run.name), shape.name - 1)
    spans = [
        Span(symbol + " ", look),
        Span(name + " " * (shape.name - cell_width(name)), "bold" if look in {"crit", "warn"} else ""),
    ]
    stale, waits, spared = is_stale(run, state), waiting(run, state), 0
    for column in shape.columns:
        if column is LAST and waits is not None and LEFT in shape.columns:
            spared = column.width  # what it waits for is longer than the age of a step that does not matter now
            continue
        text, cell_style = column.cell(run, state, now)
        width = column.width + (spared if column is LEFT else 0)
        spans.append(Span(" " * max(0, width - cell_width(text)) + text, cell_style or ("dim" if stale else "")))
    return Row(run.name, tuple(spans))


def job_of(run: Run, state: State) -> Job | None:
    """The job that trains now, else the next, else the last."""
    return state.jobs.get(run.job or "")


def waiting(run: Run, state: State) -> Job | None:
    """The job that a queued run waits for."""
    jobs = (state.jobs.get(key) for key in run.jobs) if run.verdict == "queued" else ()
    return next((job for job in jobs if job is not None and job.stage == "waiting" and job.gone_at is None), None)


def is_stale(run: Run, state: State) -> bool:
    """Whether the source of its numbers does not answer: what is shown is what was."""
    if run.log is None:
        return False
    source = state.sources.get(f"node:{run.log.host}")
    return source is not None and source.health in {"late", "down"}


def overdue(run: Run, now: Instant) -> bool:
    """Whether the next step should have come by now: three times its own cadence, or what the config says."""
    progress = run.progress
    if progress.at is None or run.verdict in {"finished", "stopped", "queued", "idle"}:
        return False
    usual = 3 * progress.cadence_s if progress.cadence_s else run.spec.stall_after
    return now - progress.at > max(usual, 10.0)


def _nodes(run: Run, state: State, now: Instant) -> Span:
    return Span(str(len(run.spec.nodes)) if run.spec.nodes else "-")


def _step(run: Run, state: State, now: Instant) -> Span:
    step = run.progress.step
    return Span("?" if step is None else count(step), "dim" if step is None else "")


def _loss(run: Run, state: State, now: Instant) -> Span:
    loss = run.progress.loss
    if loss is None:
        return Span("? " if run.progress.step is None else "- ", "dim")
    if not math.isfinite(loss):
        return Span(real(loss) + "!", "crit")
    return Span(real(loss) + " ")


def _rate(run: Run, state: State, now: Instant) -> Span:
    progress = run.progress
    if progress.tokens_per_s is not None:
        return Span(short(progress.tokens_per_s))
    if progress.samples_per_s is not None:
        return Span(f"{short(progress.samples_per_s)}sa")
    return Span("-", "dim")


def _last(run: Run, state: State, now: Instant) -> Span:
    if run.progress.at is None:
        return Span("- ", "dim")
    late = overdue(run, now)
    return Span(calm_age(now - run.progress.at) + ("!" if late else " "), "warn" if late else "")


def _left(run: Run, state: State, now: Instant) -> Span:
    """Until the last step, or until its job's time is up if that comes first; else its verdict, or why it waits."""
    waits = waiting(run, state)
    if waits is not None:
        return Span(short_wait(waits, now), style(run.verdict))
    if run.verdict not in GOING:
        return Span(run.verdict, style(run.verdict))
    job = job_of(run, state)
    seconds = None if job is None else left(job, now)
    if seconds is not None and (run.eta_at is None or seconds < run.eta_at - now):
        needed = needed_to_save(run)
        short_of_it = needed is not None and seconds < needed
        return Span(f"job {whole(seconds)}{'!' if short_of_it else ''}", "crit" if short_of_it else "")
    if run.eta_at is None:
        return Span("-" if run.progress.target_step is None else "?", "dim")
    return Span(eta(run.eta_at, now))


def _job(run: Run, state: State, now: Instant) -> Span:
    """`418190+2`: its job, and how many wait behind it."""
    if run.job is None:
        return Span("-", "dim")
    job = job_of(run, state)
    name = run.job.partition("/")[2] if job is None else str(job.array) if job.is_waiting_array else job.id
    over = job is None or job.gone_at is not None or job.stage == "ended"
    return Span(clean(name) + (f"+{run.queued_behind}" if run.queued_behind else ""), "dim" if over else "")


def _checkpoint(run: Run, state: State, now: Instant) -> Span:
    """The age of the last committed checkpoint."""
    found = run.checkpoints
    if found is None:
        return Span("? " if run.spec.checkpoints else "- ", "dim")
    last = found.committed
    if last is None or last.at is None:
        return Span("none!" if found.problem else "? " if found.error else "- ", "crit" if found.problem else "dim")
    if found.problem is not None:
        return Span(calm_age(now - last.at) + "!", "crit")
    late = save_overdue(found, now) and run.verdict in GOING
    return Span(calm_age(now - last.at) + ("!" if late else " "), "warn" if late else "")


def _switches(run: Run, state: State, now: Instant) -> Span:
    kill = run.kill is not None and run.kill.exists
    save = run.save is not None and run.save.exists
    if kill or save:
        return Span("K+S" if kill and save else "KILL" if kill else "SAVE", "crit" if kill else "warn")
    known = [switch.exists for switch in (run.kill, run.save) if switch is not None]
    return Span("?" if None in known else "-", "dim")


JOB = Column("JOB", 13, _job)
STEP = Column("STEP", 9, _step)
LAST = Column("LAST ", 6, _last)
CHECKPOINT = Column("CK ", 6, _checkpoint)
LEFT = Column("LEFT", 11, _left)

COLUMNS: tuple[Column, ...] = (
    JOB,
    Column("N", 4, _nodes),
    STEP,
    Column("LOSS ", 8, _loss),
    Column("TOK/S", 7, _rate),
    CHECKPOINT,
    LAST,
    LEFT,
    Column("SW", 5, _switches),
)

GIVE_WAY = ("N", "TOK/S", "CK ", "JOB", "SW", "LEFT", "LOSS ", "LAST ")
"""Which columns go first where there is no room for all."""

NAME = 12
"""Cells that a name may claim from the columns."""
