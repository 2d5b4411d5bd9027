"""`2 GPUs`: one line a node, one cell a GPU; the worst node first."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from textual.binding import BindingType

from trainmon.lib import Instant, clean
from trainmon.model import State
from tui.keys import bindings
from tui.panes.base import Pane
from tui.style import UNKNOWN, source_words
from tui.views import Kind
from tui.views.alerts import marked, marks
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
    ("No node is watched yet. Name hosts on the command line:", ""),
    ("", ""),
    ("    trainmon-tui gpu-001 gpu-002", "dim"),
    ("", ""),
    ("or nodes in trainmon.toml; `trainmon-tui init` writes one.", ""),
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
            self.head()
            self.caption()
            self.say(*EMPTY)
            return
        rows = self.grid.rows(state, self.metric, width, self.sort, self.filter)
        self.head(*self.grid.head)
        alerts = marks(state).nodes
        if alerts:
            rows = [marked(row, alerts.get(row.key)) for row in rows]
        if rows:
            self.lines.set_rows(rows)
        else:
            self.say((f"No node matches “{self.filter}”. Esc shows all.", "dim"))
        self.caption(caption(state, self.grid.ranks()), self.metric.title)

    def footnote(self, state: State) -> tuple[str, str] | None:
        """The selected node in full: its line may be cut."""
        return None if self.selected is None else story(state, self.selected, state.at)


def caption(state: State, ranks: list[int]) -> str:
    """`64 × 8`, and the number of nodes by problem."""
    sizes = Counter(len(node.gpus) for node in state.nodes.values())
    gpus = sum(count * nodes for count, nodes in sizes.items())
    if gpus and len(sizes) == 1 and len(state.nodes) == len(ranks):
        each = f"{len(ranks)} × {gpus // len(ranks)}"
    else:
        none = "no" if len(state.nodes) == len(ranks) else UNKNOWN
        each = f"{len(ranks)} node{'' if len(ranks) == 1 else 's'}, {gpus or none} GPU{'' if gpus == 1 else 's'}"
    words = {DOWN: "down", LOST: "lost", HOT: "hot", LATE: "late"}
    counted = Counter(ranks)
    return "  ".join([each, *(f"{counted[rank]} {word}" for rank, word in words.items() if counted[rank])])


def story(state: State, name: str, now: Instant) -> tuple[str, str]:
    """A sentence about one node, and its style."""
    node, source = state.nodes.get(name), state.sources.get(f"node:{name}")
    if source is not None and source.health != "ok":
        words = source_words(source, now)
        hint = f"; {source.hint}" if source.hint else ""
        return clean(f"{name}: {words.text}{hint}"), words.style or "dim"
    if node is None:
        return "", "dim"
    lost = [f"gpu{gpu.index}: {gpu.error}" for gpu in node.gpus if gpu.state != "ok" and gpu.error]
    flags = node_summary(node, now).flags
    note = node.note or (NO_DRIVER if without_driver(node) else "")
    said = "  ".join((*(flag.text for flag in flags), *lost, *((note,) if note else ())))
    worst = "crit" if any(flag.style == "crit" for flag in flags) else "warn" if flags else "dim"
    return (clean(f"{name}: {said}"), worst) if said else ("", "dim")
