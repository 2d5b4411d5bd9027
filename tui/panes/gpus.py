"""`2 GPUs`: one line a node, one cell a GPU; the worst node first."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from textual.binding import BindingType

from trainmon.analysis.nodes import failing_server
from trainmon.lib import Instant, clean, counted
from trainmon.model import State
from tui.keys import bindings
from tui.panes.base import Pane
from tui.style import UNKNOWN, source_text
from tui.views import Kind
from tui.views.alerts import alert_marks, alert_ranks, with_mark
from tui.views.nodes import (
    DOWN,
    HOT,
    LATE,
    LOST,
    METRICS,
    NO_DRIVER,
    Grid,
    Metric,
    node_names,
    node_summary,
    without_driver,
)

EMPTY = (
    ("No node is watched yet. Give host names on the command line:", ""),
    ("", ""),
    ("    trainmon-tui gpu-001 gpu-002", "dim"),
    ("", ""),
    ("or list nodes in trainmon.toml. `trainmon-tui init` writes that file.", ""),
)


class GpusPane(Pane):
    """The grid of all GPUs. `v` changes the metric of its cells."""

    NUMBER = "2"
    NAME = "GPUs"
    SORTS = ("severity", "name", "temperature", "utilization")
    KIND: ClassVar[Kind | None] = "node"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("gpus")]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.metric: Metric = METRICS[0]
        self.grid = Grid()

    def action_metric(self) -> None:
        """Show the next metric."""
        self.metric = METRICS[(METRICS.index(self.metric) + 1) % len(METRICS)]
        self.again()

    def draw(self, state: State, width: int) -> None:
        if not node_names(state):
            self.show_sentences(*EMPTY)
            return
        ranks, alerts = alert_ranks(state).nodes, alert_marks(state).nodes
        rows = self.grid.rows(state, self.metric, width, self.sort, self.filter, ranks)
        self.head(*self.grid.head)
        if alerts:
            rows = [with_mark(row, alerts.get(row.key)) for row in rows]
        self.show_rows(rows, "node")
        self.caption(grid_caption(state, self.grid.ranks()), self.metric.title)

    def footnote(self, state: State) -> tuple[str, str] | None:
        """The selected node in full: its line may be cut."""
        return None if self.selected is None else node_sentence(state, self.selected, state.at)


def grid_caption(state: State, ranks: list[int]) -> str:
    """`64 × 8`, and the number of nodes by problem."""
    gpus = [len(node.gpus) for node in state.nodes.values()]
    are_all_read = len(gpus) == len(ranks)
    if any(gpus) and len(set(gpus)) == 1 and are_all_read:
        sizes = f"{len(gpus)} × {gpus[0]}"
    else:
        total = str(sum(gpus) or ("no" if are_all_read else UNKNOWN))
        sizes = f"{counted(len(ranks), 'node')}, {total} GPU{'' if total == '1' else 's'}"
    counts = Counter(ranks)
    problems = ((DOWN, "down"), (LOST, "lost"), (HOT, "hot"), (LATE, "late"))
    return "  ".join([sizes, *(f"{counts[rank]} {text}" for rank, text in problems if counts[rank])])


def node_sentence(state: State, name: str, now: Instant) -> tuple[str, str]:
    """A sentence about one node, and its style."""
    node, source = state.nodes.get(name), state.sources.get(f"node:{name}")
    if source is not None and source.health != "ok":
        server = failing_server(source, state.sources)
        text, style = source_text(source, now, server)
        hint = (server or source).hint
        return clean(f"{name}: {text}" + (f"; {hint}" if hint else "")), style or "dim"
    if node is None:
        return "", "dim"
    flags = node_summary(node, now).flags
    errors = (f"gpu{gpu.index}: {gpu.error}" for gpu in node.gpus if gpu.state != "ok" and gpu.error)
    note = node.note or (NO_DRIVER if without_driver(node) else "")
    text = "  ".join(part for part in (*(flag.text for flag in flags), *errors, note) if part)
    style = "crit" if any(flag.style == "crit" for flag in flags) else "warn" if flags else "dim"
    return (clean(f"{name}: {text}"), style) if text else ("", "dim")
