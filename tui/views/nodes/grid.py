"""The GPU grid as rows: one line a node, one cell a GPU; and its filter. Pure, except for the kept rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from trainmon.analysis.nodes import failing_server
from trainmon.lib import Instant, Seconds, cell_width, clean, natural_key, shorten
from trainmon.model import LATE_AFTER, Gpu, Node, Source, State
from tui.style import CRIT, DEAD, WARN, Span, mib, pad, source_text
from tui.views.alerts import Concern
from tui.views.nodes.cells import NO_CELL, UNKNOWN_CELL, Metric, fit, gpu_cells
from tui.views.nodes.summary import DOWN, FAULTY, LATE, LOST, OFF, WELL, NodeSummary, node_summary
from tui.widgets import Row

GAP = Span(" ")
NOTHING = Span("")


# ---- the columns of a width ----------------------------------------------------------------------------------------


class GridLayout(NamedTuple):
    """Where things go in a line of `width` cells."""

    width: int
    name: int
    columns: int
    """GPUs a line shows one by one."""
    cell: int
    tail: bool
    """Whether memory and utilisation have their columns."""

    @property
    def rest(self) -> int:
        """Cells right of the GPU cells."""
        return self.width - 2 - self.name - self.columns * self.cell


MEMORY, UTILIZATION = 8, 6
FLAGS = 9
"""Cells that flags need beside memory and utilization. With fewer they take their place."""


def layout(width: int, names: int, gpus: int, metric: Metric) -> GridLayout:
    """Fit a line: roomy cells if flags keep their room, else tight ones; then the tail; then the name gives way."""
    name, tight = min(names, max(6, width // 3)), metric.width - 1
    for cell, flags in ((metric.width, FLAGS), (tight, 0)):
        made = GridLayout(width, name, gpus, cell, tail=True)
        if made.rest >= MEMORY + UTILIZATION + flags:
            return made
    made = GridLayout(width, name, gpus, tight, tail=False)
    if made.rest >= 0:
        return made
    name = min(name, 8)
    return made._replace(name=name, columns=min(gpus, max(1, (width - 2 - name) // tight)))


def head(shape: GridLayout) -> tuple[Span, ...]:
    """The names of the columns; the GPU numbers stand over the values, not over their sign."""
    gpus = "".join(f"{index} ".rjust(shape.cell) for index in range(shape.columns))
    tail = f"{'mem max':>{MEMORY}}{'util':>{UTILIZATION}}" if shape.tail else ""
    return (Span(f"  {'NODE':<{shape.name}}{gpus}{tail}", "head"),)


# ---- one node ------------------------------------------------------------------------------------------------------


class NodeView(NamedTuple):
    """A node as a line, with what it is sorted by."""

    row: Row
    rank: int
    summary: NodeSummary


BLANK = Span("  ")
SIGNS = {DOWN: Span(DEAD + " ", "crit"), LATE: BLANK, WELL: BLANK, OFF: BLANK}
"""By rank. The sign of other ranks is that of the worst flag."""


def join_flags(flags: Sequence[Span], width: int) -> tuple[Span, ...]:
    """Flags side by side. At the end of the line a flag loses its reasons (`THROTTLE`) or is cut."""
    spans: list[Span] = []
    for flag in flags:
        gap = [Span("  ")] if spans else []
        space = width - 2 * len(gap)
        word = flag.text.partition(" ")[0]
        text = shorten(word if word.isupper() and cell_width(flag.text) > space else flag.text, space)
        if not text:
            break
        spans += [*gap, Span(text, flag.style)]
        width = space - cell_width(text)
    return tuple(spans)


def summary_cells(found: NodeSummary, shape: GridLayout, style: str = "") -> tuple[Span, ...]:
    """Memory and utilization in their columns, then the flags. Long flags take these columns as well."""
    needed = sum(cell_width(flag.text) + 2 for flag in found.flags)
    space = shape.rest - MEMORY - UTILIZATION - 2
    if not shape.tail or (found.flags and (space < FLAGS or space < needed <= shape.rest + 1)):
        return (GAP, *join_flags(found.flags, shape.rest - 1)) if found.flags and shape.rest > 1 else ()
    memory = mib(found.memory_used_mib) if found.memory_used_mib is not None else found.no_memory
    used = f"{found.utilization_pct:.0f}%" if found.utilization_pct is not None else found.no_utilization
    numbers = Span(f"{memory:>{MEMORY}}{used:>{UTILIZATION}}", style)
    return (numbers, BLANK, *join_flags(found.flags, space)) if found.flags else (numbers,)


def silent_cells(node: Node | None, why: Span, shape: GridLayout) -> tuple[Span, ...]:
    """The cells of a node that does not answer: unknown, and why. A long reason takes their place."""
    columns = 0 if node is None else min(max(len(node.gpus), node.gpus_expected or 0), shape.columns)
    unknown = fit(*UNKNOWN_CELL, shape.cell)
    if columns and cell_width(why.text) + 1 <= shape.rest:
        none = (fit(*NO_CELL, shape.cell),) * (shape.columns - columns)
        return (*(unknown,) * columns, *none, GAP, why)
    return (unknown, GAP, Span(shorten(why.text, shape.width - 2 - shape.name - shape.cell - 1), why.style))


def rank_of(source: Source | None, found: NodeSummary | None) -> int:
    """The rank of a node. The health of its source comes before the last values of its GPUs."""
    health = "ok" if source is None else source.health
    if health in ("down", "off"):
        return DOWN if health == "down" else OFF
    return LATE if found is None or (health == "late" and found.rank == WELL) else found.rank


def node_view(
    name: str, node: Node | None, source: Source | None, why: Span, metric: Metric, shape: GridLayout, now: Instant
) -> NodeView:
    """One node's line. `why` is the problem of its source."""
    found = None if node is None else node_summary(node, now)
    rank, health = rank_of(source, found), "ok" if source is None else source.health
    label = Span(pad(shorten(name, shape.name - 1), shape.name), "dim" if rank in (OFF, LATE) else "")
    if node is None or found is None or health in ("down", "off"):
        return NodeView(Row(name, (SIGNS.get(rank, BLANK), label, *silent_cells(node, why, shape))), rank, EMPTY)
    if health == "ok":
        worst = (CRIT, "crit") if any(flag.style == "crit" for flag in found.flags) else (WARN, "warn")
        sign = SIGNS.get(rank) or Span(worst[0] + " ", worst[1])
        is_old = node.gpus_at is not None and source is not None and now - node.gpus_at > LATE_AFTER * source.period
        style = "dim" if is_old else None  # the rest of the node answers
        cells = (*gpu_cells(node, metric, shape.cell, shape.columns, style), *summary_cells(found, shape, style or ""))
        return NodeView(Row(name, (sign, label, *cells)), rank, found)
    stale = found._replace(flags=(why, *(flag._replace(style="dim") for flag in found.flags)))
    cells = (*gpu_cells(node, metric, shape.cell, shape.columns, "dim"), *summary_cells(stale, shape, "dim"))
    return NodeView(Row(name, (BLANK, label, *cells)), rank, stale)


EMPTY = NodeSummary(WELL)


# ---- the filter ----------------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Gpu], float | None]] = {
    "temp": lambda gpu: gpu.temperature_c,
    "util": lambda gpu: gpu.utilization_pct,
    "mem": lambda gpu: None if gpu.memory_used_mib is None else gpu.memory_used_mib / 1024,
    "power": lambda gpu: gpu.power_w,
}
_COMPARISON = re.compile(r"(temp|util|mem|power)([<>])(\d+(?:\.\d+)?)")


def is_match(word: str, node: Node | None, texts: Sequence[str]) -> bool:
    """Whether a node matches a word of the filter: a comparison such as `temp>85` must hold for any of its GPUs, and
    any of its texts must contain another word."""
    match = _COMPARISON.fullmatch(word)
    if match is None:
        return any(word.lower() in text.lower() for text in texts)
    read, limit = READERS[match[1]], float(match[3])
    values = [value for gpu in (node.gpus if node else ()) if (value := read(gpu)) is not None]
    return any(value > limit if match[2] == ">" else value < limit for value in values)


# ---- all nodes -----------------------------------------------------------------------------------------------------


SETTLE: Seconds = 15.0
"""How long a node keeps its place after it recovered: a node that is hot every other second must not jump."""


ALERT_RANKS = {Concern.CRITICAL: LOST, Concern.WARNING: FAULTY, Concern.PENDING: LATE, Concern.NONE: OFF}
"""The rank of a node with an alert, if its own rank is not worse."""


class Grid:
    """Rows of all nodes. A node whose values did not change keeps its row."""

    def __init__(self) -> None:
        self._ranks: dict[str, tuple[int, Instant]] = {}
        """Of each node, the rank that it is sorted by, and when it last had that rank."""
        self._views: dict[str, tuple[tuple[object, ...], NodeView]] = {}
        self.head: tuple[Span, ...] = ()

    def rows(
        self,
        state: State,
        metric: Metric,
        width: int,
        sort: str = "severity",
        query: str = "",
        alerts: Mapping[str, Concern] = {},
    ) -> list[Row]:
        """The lines that match the filter, in this order. `alerts`: the concern of each node that has one."""
        names = node_names(state)
        gpus = max((max(len(node.gpus), node.gpus_expected or 0) for node in state.nodes.values()), default=0)
        longest = max((cell_width(name) for name in names), default=4)
        shape = layout(width, max(4, longest) + 1, max(gpus, 1), metric)
        self.head = head(shape)
        views = [(name, self._view(name, state, metric, shape)) for name in names]
        self._views = {name: self._views[name] for name in names}
        for word in query.split():
            views = [(name, one) for name, one in views if is_match(word, state.nodes.get(name), texts(state, one))]
        ranks = {name: min(one.rank, ALERT_RANKS[alerts.get(name, Concern.NONE)]) for name, one in views}
        self._ranks = {name: self._rank(name, rank, state.at) for name, rank in ranks.items()}
        views.sort(key=ORDERS.get(sort, lambda one: (self._ranks[one[0]][0], natural_key(one[0]))))
        return [one.row for _, one in views]

    def _rank(self, name: str, rank: int, now: Instant) -> tuple[int, Instant]:
        held = self._ranks.get(name)
        return held if held is not None and held[0] < rank and 0 <= now - held[1] < SETTLE else (rank, now)

    def _view(self, name: str, state: State, metric: Metric, shape: GridLayout) -> NodeView:
        node, source = state.nodes.get(name), state.sources.get(f"node:{name}")
        why = NOTHING
        if source is not None and source.health != "ok":
            why = source_text(source, state.at, failing_server(source, state.sources))
            why = why._replace(text=clean(why.text, 400))
        key = (node, None if source is None else source.health, why, metric, shape)
        kept = self._views.get(name)
        if kept is None or kept[0][0] is not node or kept[0][1:] != key[1:]:
            kept = self._views[name] = (key, node_view(name, node, source, why, metric, shape, state.at))
        return kept[1]

    def ranks(self) -> list[int]:
        return [one.rank for _, one in self._views.values()]


def node_names(state: State) -> list[str]:
    """Every watched node, whether it has answered or not."""
    watched = [source.name.removeprefix("node:") for source in state.sources.values() if source.kind == "node"]
    return watched + [name for name in state.nodes if f"node:{name}" not in state.sources]


ORDERS: dict[str, Callable[[tuple[str, NodeView]], tuple[object, ...]]] = {
    "name": lambda one: (natural_key(one[0]),),
    "temperature": lambda one: (-(one[1].summary.hottest_c or 0), natural_key(one[0])),
    # the least used first: one looks for idle GPUs; unknown last
    "utilization": lambda one: (
        101.0 if (used := one[1].summary.utilization_pct) is None else used,
        natural_key(one[0]),
    ),
}


def texts(state: State, view: NodeView) -> tuple[str, ...]:
    """The texts that the filter searches: name, cluster, flags, and why a node does not answer."""
    node = state.nodes.get(view.row.key)
    flags = (flag.text for flag in view.summary.flags)
    return (view.row.key, node.cluster if node else "", view.row.spans[-1].text, *flags)
