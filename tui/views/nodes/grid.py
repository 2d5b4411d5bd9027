"""The GPU grid as rows: one line a node, one cell a GPU. Pure, except for the cache of unchanged rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, clean, natural_key, shorten
from trainmon.lib import cell_width as cells_of
from trainmon.model import Node, Source, State
from tui.style import CRIT, DEAD, WARN, Span, mib, pad, source_words
from tui.views.nodes.cells import NO_CELL, UNKNOWN_CELL, Metric, fit, gpu_cells
from tui.views.nodes.filter import matcher
from tui.views.nodes.summary import DOWN, LATE, OFF, WELL, NodeSummary, survey
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
    name = min(names, max(6, width // 3))
    for cell, flags in ((metric.width, FLAGS), (metric.width - 1, 0)):
        made = GridLayout(width, name, gpus, cell, tail=True)
        if made.rest >= MEMORY + UTILIZATION + flags:
            return made
    made = GridLayout(width, name, gpus, metric.width - 1, tail=False)
    if made.rest >= 0:
        return made
    name = min(name, 8)
    columns = max(1, (width - 2 - name) // (metric.width - 1))
    return GridLayout(width, name, min(gpus, columns), metric.width - 1, tail=False)


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
    survey: NodeSummary


SIGNS = {DOWN: Span(DEAD + " ", "crit"), LATE: Span("  "), WELL: Span("  "), OFF: Span("  ")}


def _sign(rank: int, found: NodeSummary) -> Span:
    worst = any(flag.style == "crit" for flag in found.flags)
    return SIGNS.get(rank) or (Span(CRIT + " ", "crit") if worst else Span(WARN + " ", "warn"))


def join_flags(flags: Sequence[Span], width: int) -> tuple[Span, ...]:
    """Flags side by side. At the end of the line a flag loses its reasons (`THROTTLE`) or is cut."""
    spans: list[Span] = []
    for flag in flags:
        gap = 2 if spans else 0
        word = flag.text.partition(" ")[0]
        short = word if word.isupper() and cells_of(flag.text) > width - gap else flag.text
        text = shorten(short, width - gap)
        if not text:
            break
        spans += ([Span("  ")] if gap else []) + [Span(text, flag.style)]
        width -= gap + cells_of(text)
    return tuple(spans)


def _tail(found: NodeSummary, shape: GridLayout, style: str | None) -> tuple[Span, ...]:
    """Memory and utilization in their columns, then the flags. Long flags take these columns as well."""
    wanted = sum(cells_of(flag.text) + 2 for flag in found.flags)
    room = shape.rest - MEMORY - UTILIZATION - 2
    if not shape.tail or (found.flags and (room < FLAGS or room < wanted <= shape.rest + 1)):
        return (GAP, *join_flags(found.flags, shape.rest - 1)) if found.flags and shape.rest > 1 else ()
    memory = mib(found.memory_used_mib) if found.memory_used_mib is not None else found.no_memory
    used = f"{found.utilization_pct:.0f}%" if found.utilization_pct is not None else found.no_utilization
    numbers = Span(f"{memory:>{MEMORY}}{used:>{UTILIZATION}}", style or "")
    return (numbers, Span("  "), *join_flags(found.flags, room)) if found.flags else (numbers,)


def _silent(node: Node | None, words: Span, shape: GridLayout) -> tuple[Span, ...]:
    """The cells of a node that does not answer: unknown, and why. A long reason takes their place."""
    columns = 0 if node is None else min(max(len(node.gpus), node.gpus_expected or 0), shape.columns)
    if columns and cells_of(words.text) + 1 <= shape.rest:
        unknown = (fit(*UNKNOWN_CELL, shape.cell),) * columns
        none = (fit(*NO_CELL, shape.cell),) * (shape.columns - columns)
        return (*unknown, *none, GAP, words)
    room = shape.width - 2 - shape.name - shape.cell - 1
    return (fit(*UNKNOWN_CELL, shape.cell), GAP, Span(shorten(words.text, room), words.style))


def rank_of(source: Source | None, found: NodeSummary | None) -> int:
    """The rank of a node. The health of its source comes before the last values of its GPUs."""
    if source is not None and source.health == "down":
        return DOWN
    if source is not None and source.health == "off":
        return OFF
    if found is None or (source is not None and source.health == "late"):
        return LATE if found is None or found.rank == WELL else found.rank
    return found.rank


def view(
    name: str, node: Node | None, source: Source | None, words: Span, metric: Metric, shape: GridLayout, now: Instant
) -> NodeView:
    """One node's line."""
    found = survey(node, now) if node is not None else EMPTY
    rank = rank_of(source, found if node is not None else None)
    label = Span(pad(shorten(name, shape.name - 1), shape.name), "dim" if rank in (OFF, LATE) else "")
    if node is None or (source is not None and source.health in ("down", "off")):
        return NodeView(Row(name, (SIGNS.get(rank, SIGNS[LATE]), label, *_silent(node, words, shape))), rank, EMPTY)
    if source is None or source.health == "ok":
        gpus = gpu_cells(node, metric, shape.cell, shape.columns)
        return NodeView(Row(name, (_sign(rank, found), label, *gpus, *_tail(found, shape, None))), rank, found)
    stale = found._replace(flags=(words, *(flag._replace(style="dim") for flag in found.flags)))
    gpus = gpu_cells(node, metric, shape.cell, shape.columns, "dim")
    return NodeView(Row(name, (SIGNS[LATE], label, *gpus, *_tail(stale, shape, "dim"))), rank, stale)


EMPTY = NodeSummary(WELL)


# ---- all nodes -----------------------------------------------------------------------------------------------------


SETTLE: Seconds = 15.0
"""How long a node keeps its place after it recovered: a node that is hot every other second must not jump."""


class Grid:
    """Rows of all nodes. A node whose values did not change keeps its row."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, Instant]] = {}
        self._views: dict[str, tuple[tuple[object, ...], NodeView]] = {}
        self._shape: GridLayout | None = None

    def rows(self, state: State, metric: Metric, width: int, sort: str = "severity", wanted: str = "") -> list[Row]:
        """The lines that match `wanted`, in the order asked for."""
        names = node_names(state)
        self._shape = shape = self.shape(state, names, metric, width)
        views = [(name, self._view(name, state, metric, shape)) for name in names]
        self._views = {name: self._views[name] for name in names}
        if wanted:
            test = matcher(wanted)
            views = [(name, seen) for name, seen in views if test(state.nodes.get(name), texts(name, state, seen))]
        self._places = {name: self._place(name, seen.rank, state.at) for name, seen in views}
        if sort == "severity":
            views.sort(key=lambda seen: (self._places[seen[0]][0], natural_key(seen[0])))
        else:
            views.sort(key=ORDERS[sort])
        return [seen.row for _, seen in views]

    def _place(self, name: str, rank: int, now: Instant) -> tuple[int, Instant]:
        """The rank to sort by, and when the node was last as bad as that."""
        held = self._places.get(name)
        return held if held is not None and held[0] < rank and 0 <= now - held[1] < SETTLE else (rank, now)

    def shape(self, state: State, names: Sequence[str], metric: Metric, width: int) -> GridLayout:
        """The columns of this width for these nodes."""
        gpus = max((max(len(node.gpus), node.gpus_expected or 0) for node in state.nodes.values()), default=0)
        longest = max((cells_of(name) for name in names), default=4)
        return layout(width, max(4, longest) + 1, max(gpus, 1), metric)

    def _view(self, name: str, state: State, metric: Metric, shape: GridLayout) -> NodeView:
        node, source = state.nodes.get(name), state.sources.get(f"node:{name}")
        words = NOTHING
        if source is not None and source.health != "ok":
            words = source_words(source, state.at)
            words = words._replace(text=clean(words.text, 400))
        key = (node, None if source is None else source.health, words, metric, shape)
        kept = self._views.get(name)
        if kept is not None and kept[0][0] is node and kept[0][1:] == key[1:]:
            return kept[1]
        seen = view(name, node, source, words, metric, shape, state.at)
        self._views[name] = (key, seen)
        return seen

    @property
    def head(self) -> tuple[Span, ...]:
        return () if self._shape is None else head(self._shape)

    def ranks(self) -> list[int]:
        return [seen.rank for _, seen in self._views.values()]


def node_names(state: State) -> list[str]:
    """Every watched node, whether it has answered or not."""
    watched = [source.name.removeprefix("node:") for source in state.sources.values() if source.kind == "node"]
    return watched + [name for name in state.nodes if f"node:{name}" not in state.sources]


Seen = tuple[str, NodeView]

ORDERS: dict[str, Callable[[Seen], tuple[object, ...]]] = {
    "name": lambda seen: natural_key(seen[0]),
    "temperature": lambda seen: (-(seen[1].survey.hottest_c or 0), natural_key(seen[0])),
    # the least used first: one looks for idle GPUs; unknown last
    "utilization": lambda seen: (
        101.0 if (used := seen[1].survey.utilization_pct) is None else used,
        natural_key(seen[0]),
    ),
}


def texts(name: str, state: State, seen: NodeView) -> tuple[str, ...]:
    """The texts that the filter searches: name, cluster, flags, and why a node does not answer."""
    node = state.nodes.get(name)
    flags = (flag.text for flag in seen.survey.flags)
    return (name, node.cluster if node else "", seen.row.spans[-1].text, *flags)
