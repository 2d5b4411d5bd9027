"""`1 Runs`: is my training alive? One line a run, the one that needs a person most first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from trainmon.clock import Instant
from trainmon.model import Run, State
from trainmon.text import cells, clean, shorten
from tui.format import VERDICTS, calm_age, count, eta, real, short
from tui.lines import Row, Span
from tui.panes.base import Pane
from tui.verdicts import RANK, style

GOING = {"healthy", "evaluating", "saving"}
"""Verdicts of a run that has an end to wait for; for the others the verdict's word stands there instead."""

EMPTY = (
    ("No run is watched yet. Name one in trainmon.toml:", ""),
    ("", ""),
    ("    [[run]]", "dim"),
    ('    name = "llm-7b"', "dim"),
    ('    log  = "/scratch/llm-7b/logs/*.out"', "dim"),
)


class Column(NamedTuple):
    """A column: its head, its width, the narrowest and the first too wide pane that shows it."""

    name: str
    width: int
    from_width: int
    cell: Callable[[Run, State, Instant], Span]
    to_width: int = 10_000


class RunsPane(Pane):
    """The runs; the selected one's log and detail are shown beside it."""

    NUMBER = "1"
    NAME = "Runs"
    SORTS = ("worst", "name", "last", "step")

    def draw(self, state: State, width: int) -> None:
        if not state.runs:
            self.head()
            self.caption()
            self.say(*EMPTY)
            return
        shown = ordered(state, self.sort, self.filter)
        self.head(Span(head(width), "head"))
        self.lines.set_rows([row(run, state, state.at, width) for run in shown])
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


def shown_columns(width: int) -> list[Column]:
    return [column for column in COLUMNS if column.from_width <= width < column.to_width]


def name_width(width: int) -> int:
    return max(6, width - 2 - sum(column.width for column in shown_columns(width)))


def head(width: int) -> str:
    return (
        "  "
        + "RUN".ljust(name_width(width))
        + "".join(column.name.rjust(column.width) for column in shown_columns(width))
    )


def row(run: Run, state: State, now: Instant, width: int) -> Row:
    """One run as one line."""
    symbol, look = VERDICTS[run.verdict]
    room = name_width(width)
    name = shorten(clean(run.name), room - 1)
    spans = [
        Span(symbol + " ", look),
        Span(name + " " * (room - cells(name)), "bold" if look in {"crit", "warn"} else ""),
    ]
    stale = is_stale(run, state)
    for column in shown_columns(width):
        text, cell_style = column.cell(run, state, now)
        spans.append(Span(" " * max(0, column.width - cells(text)) + text, cell_style or ("dim" if stale else "")))
    return Row(run.name, tuple(spans))


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
    if run.verdict not in GOING:
        return Span(run.verdict, style(run.verdict))
    if run.eta_at is None:
        return Span("-" if run.progress.target_step is None else "?", "dim")
    return Span(eta(run.eta_at, now))


def _switches(run: Run, state: State, now: Instant) -> Span:
    kill = run.kill is not None and run.kill.exists
    save = run.save is not None and run.save.exists
    if kill or save:
        return Span("K+S" if kill and save else "KILL" if kill else "SAVE", "crit" if kill else "warn")
    known = [switch.exists for switch in (run.kill, run.save) if switch is not None]
    return Span("?" if None in known else "-", "dim")


COLUMNS: tuple[Column, ...] = (
    Column("N", 3, 60, _nodes, to_width=72),
    Column("NODES", 6, 72, _nodes),
    Column("STEP", 10, 0, _step),
    Column("LOSS ", 9, 40, _loss),
    Column("TOK/S", 8, 58, _rate),
    Column("LAST ", 7, 30, _last),
    Column("LEFT", 11, 44, _left),
    Column("SW", 5, 58, _switches),
)
