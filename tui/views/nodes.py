"""The GPU grid as rows: one line a node, one cell a GPU, its problems as flags; and its fields. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from trainmon.analysis.nodes import failing_server
from trainmon.lib import DAY, Instant, Seconds, cell_width, clean, duration, natural_key, shorten, shorten_middle
from trainmon.model import LATE_AFTER, Gpu, Node, SchedulerNode, Series, Source, State
from tui.style import (
    CRIT,
    DEAD,
    DOT,
    HEIGHTS,
    HOT_C,
    NOT_APPLICABLE,
    UNKNOWN,
    WARN,
    Row,
    Span,
    age,
    heat,
    mib,
    pad,
    short,
    slowing,
    source_text,
)
from tui.views.alerts import Concern
from tui.views.jobs import node_state
from tui.views.table import Column, Table, chosen_columns, filtered, ordered, row_cells, value, warned

# ---- A node in one line ----------------------------------------------------------------------------------------------

DOWN, LOST, HOT, THROTTLED, FAULTY, LATE, WELL, OFF = range(8)
"""Ranks of a node, worst first."""

XID_FOR = DAY
"""How long an Xid stays in a node's line."""

CLOCK_OFF: Seconds = 5.0
"""A larger clock skew is a flag: the dates of the node's logs and files cannot be compared with ours."""


class NodeSummary(NamedTuple):
    """The rank and flags of one node's GPUs. Their load is summed up only where a person sees it."""

    rank: int
    flags: tuple[Span, ...] = ()
    node: Node | None = None

    @property
    def gpus(self) -> Sequence[Gpu]:
        """Those that answer."""
        return () if self.node is None else [gpu for gpu in self.node.gpus if gpu.state == "ok"]

    @property
    def utilization_pct(self) -> float | None:
        """Of all GPUs. MIG GPUs have none."""
        used = [gpu.utilization_pct for gpu in self.gpus if gpu.utilization_pct is not None and not gpu.mig]
        return sum(used) / len(used) if used else None

    @property
    def memory_used_mib(self) -> int | None:
        """Of the GPU that uses the most: it runs out of memory first."""
        return max((gpu.memory_used_mib for gpu in self.gpus if gpu.memory_used_mib is not None), default=None)

    @property
    def unknown(self) -> tuple[str, str]:
        """The texts for a memory and a utilization that are not known. MIG GPUs, and nodes without GPUs, have none."""
        node = self.node
        if node is None or (node.gpus and not all(gpu.mig for gpu in node.gpus)):
            return UNKNOWN, UNKNOWN
        has_none = without_driver(node) and node.host_at is not None and "gpu" not in node.troubles
        return NOT_APPLICABLE if has_none else UNKNOWN, NOT_APPLICABLE if has_none or node.gpus else UNKNOWN


def numbers(indexes: list[int]) -> str:
    """`gpu5`, or `gpu1,5`; of many only how many."""
    return f"gpu{','.join(map(str, indexes))}" if len(indexes) <= 3 else f"{len(indexes)} GPUs"


NO_DRIVER = "no GPU: no NVIDIA driver, nvidia-smi or AMD driver was found"


def without_driver(node: Node) -> bool:
    """Whether nothing on the node can read GPUs."""
    return node.probe == "none" and not node.gpus


def missing_gpus(node: Node) -> int:
    """The number of GPUs that the driver or PCI lists and that were never seen."""
    return max(0, (node.gpus_expected or 0) - len(node.gpus))


def host_flags(node: Node, listed: SchedulerNode | None) -> Iterator[Span]:
    """`gpu: no answer`, `DRAINED fan 3 broken`, `CLOCK 7m ahead`: what fails in the probe, why its scheduler starts no
    jobs on it, and a large clock skew. A GPU that Slurm misses is critical."""
    for part, trouble in node.troubles.items():
        yield Span(clean(f"{part}: {trouble}", 200), "warn")
    if listed is not None and not listed.is_usable:
        word, _, rest = node_state(listed).partition(", ")
        text = "; ".join(part for part in (rest, listed.reason) if part)
        yield Span(clean(f"{word.upper()} {text}".strip(), 200), "crit" if listed.lost_gpus else "warn")
    skew = node.clock_skew_s or 0.0
    if abs(skew) >= CLOCK_OFF:
        yield Span(f"CLOCK {duration(abs(skew))} {'ahead' if skew > 0 else 'behind'}", "warn")


def has_errors(gpu: Gpu) -> bool:
    return bool(gpu.last_xid is not None or gpu.ecc_uncorrected or gpu.remap_failed or gpu.remap_pending)


def gpu_flags(odd: list[Gpu], gone: int, heats: set[str], slow: Iterable[str], now: Instant) -> tuple[int, list[Span]]:
    """The rank and the flags of a node by its GPUs. `odd`: those that do not answer or have errors."""
    lost = [gpu.index for gpu in odd if gpu.state == "lost"]
    failed = [gpu.index for gpu in odd if gpu.state not in ("ok", "lost")]
    with_xid = (gpu for gpu in odd if gpu.last_xid is not None and now - (gpu.last_xid_at or 0.0) < XID_FOR)
    xid = max(with_xid, key=lambda gpu: gpu.last_xid_at or 0.0, default=None)
    answering = [gpu for gpu in odd if gpu.state == "ok"]
    ecc = sum(gpu.ecc_uncorrected or 0 for gpu in answering)
    remaps = {"failed" if gpu.remap_failed else "pending" for gpu in answering if gpu.remap_failed or gpu.remap_pending}
    texts = (
        (LOST, f"LOST {numbers(lost) if lost else f'{gone} GPU'}" if lost or gone else "", "crit"),
        (LOST, f"ERROR {numbers(failed)}" if failed else "", "crit"),
        (HOT, "HOT", "crit") if "crit" in heats else (HOT, "warm" if "warn" in heats else "", "warn"),
        (THROTTLED, f"THROTTLE {','.join(slow)}" if slow else "", "warn"),
        (FAULTY, "" if xid is None else f"XID {xid.last_xid} {age(now - (xid.last_xid_at or now))}", "warn"),
        (FAULTY, f"ECC {ecc}" if ecc else "", "crit"),
        (FAULTY, "REMAP failed", "crit") if "failed" in remaps else (FAULTY, "REMAP pending" if remaps else "", "warn"),
    )
    flags = [Span(text, style) for _, text, style in texts if text]
    return min((rank for rank, text, _ in texts if text), default=WELL), flags


def worst_gpu(node: Node, now: Instant) -> Gpu:
    """The GPU that a person looks for first."""
    odd = {gpu.index: [gpu] for gpu in node.gpus if gpu.state != "ok" or has_errors(gpu)}
    slowed = {gpu.index: slowing(gpu.throttle) for gpu in node.gpus}
    return min(node.gpus, key=lambda gpu: gpu_flags(odd.get(gpu.index, []), 0, {heat(gpu)}, slowed[gpu.index], now)[0])


def node_summary(node: Node, now: Instant, listed: SchedulerNode | None = None) -> NodeSummary:
    """The summary of one node's GPUs, scheduler, clock and probe. One pass: 2,048 GPUs are read every two seconds.
    `listed`: the node as its scheduler lists it."""
    heats: set[str] = set()
    slow: dict[str, None] = {}
    odd: list[Gpu] = []
    for gpu in node.gpus:
        if gpu.state != "ok" or has_errors(gpu):
            odd.append(gpu)
        if gpu.state == "ok":
            heats.add(heat(gpu))
            if gpu.throttle:
                slow.update(dict.fromkeys(slowing(gpu.throttle)))
    gone, others = missing_gpus(node), list(host_flags(node, listed))
    rank, flags = gpu_flags(odd, gone, heats, slow, now) if odd or gone or slow or heats - {""} else (WELL, [])
    return NodeSummary(min(rank, FAULTY) if others else rank, (*flags, *others), node)


# ---- the cells of the GPU grid ---------------------------------------------------------------------------------------


class Metric(NamedTuple):
    """A metric of the grid. Its cells are `width` wide; the last column is for a sign."""

    name: str
    title: str
    width: int
    cell: Callable[[Gpu], Span]
    share: Callable[[Gpu], float | None] = lambda _: None
    """How much of the most that is possible, 0 to 1."""


LOADS = (0.05, 0.35, 0.65, 0.9)
"""The least shares of the loads above idle. Few steps: neighbours of one colour are one escape sequence."""

LOAD_BARS = " ▂▄▆█"
"""What shows a load where there are no colours."""


def with_load(cell: Span, share: float | None, *, bars: bool) -> Span:
    """The cell of a number in the colour of its load, or with its bar behind it. A warning keeps its own."""
    if cell.style or share is None:
        return cell
    load = sum(share >= least for least in LOADS)
    return Span(cell.text[:-1] + LOAD_BARS[load] if bars else cell.text, f"load{load}")


def part_of(value: float | None, most: float | None) -> float | None:
    return None if value is None or not most else value / most


def memory(gpu: Gpu) -> Span:
    """Used memory in GiB, with a sign from 98% on."""
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    is_full = used is not None and total and used >= 0.98 * total
    return number(None if used is None else used // 1024, "warn" if is_full else "")


@lru_cache(4096)
def number(number: int | None, style: str = "") -> Span:
    """A number, with a sign if it has a style. Equal numbers are the same object."""
    return value(UNKNOWN + " ") if number is None else warned(str(number), style)


@lru_cache(4096)
def dim_zero(number: int | None) -> Span:
    """A number; zero is dim."""
    return value(UNKNOWN + " ") if number is None else Span(f"{number} ", "" if number else "dim")


def power(gpu: Gpu) -> Span:
    """Power in watts, with a sign while it limits the clock."""
    if gpu.power_w is None:
        return dim_zero(None)
    is_slowed = bool(gpu.throttle) and any("power" in reason for reason in slowing(gpu.throttle))
    return Span(f"{round(gpu.power_w)}!", "warn") if is_slowed else dim_zero(round(gpu.power_w))


def errors(gpu: Gpu) -> Span:
    """The worst error: a failed row remap, uncorrected ECC errors, an Xid, a pending row remap."""
    if gpu.remap_failed:
        return Span("map!", "crit")
    if gpu.ecc_uncorrected:
        return Span(f"e{short(gpu.ecc_uncorrected)}!", "crit")
    if gpu.last_xid is not None:
        return Span(f"x{gpu.last_xid}!", "warn")
    if gpu.remap_pending:
        return Span("map!", "warn")
    return Span(NOT_APPLICABLE + " " if gpu.ecc_uncorrected is None else "0 ", "dim")


NO_MIG = Span(NOT_APPLICABLE + " ", "dim")
"""A GPU that MIG has partitioned has no utilization."""

METRICS: tuple[Metric, ...] = (
    Metric("utilization", "util %", 5, lambda gpu: NO_MIG if gpu.mig else dim_zero(gpu.utilization_pct),
           lambda gpu: part_of(gpu.utilization_pct, 100.0)),
    Metric("temperature", "temp °C", 4, lambda gpu: number(gpu.temperature_c, heat(gpu)),
           lambda gpu: part_of(gpu.temperature_c, HOT_C)),
    Metric("memory", "memory GiB", 4, memory, lambda gpu: part_of(gpu.memory_used_mib, gpu.memory_total_mib)),
    Metric("power", "power W", 5, power, lambda gpu: part_of(gpu.power_w, gpu.power_limit_w)),
    Metric("errors", "errors", 5, errors),
)  # fmt: skip

LOST_CELL = Span(DEAD + " ", "crit")
ERROR_CELL = Span("E!", "crit")
UNKNOWN_CELL = Span(UNKNOWN + " ", "dim")
NO_CELL = Span(DOT + " ", "dim")


@lru_cache(8192)
def fit(text: str, style: str, width: int) -> Span:
    """A right-aligned cell. Equal cells are the same object, which makes comparing lines cheap."""
    return Span(text.rjust(width), style)


def gpu_cells(node: Node, metric: Metric, shape: GridLayout, style: str | None = None) -> tuple[Span, ...]:
    """A cell for each GPU, then for lost GPUs, then a dot for each slot without a GPU."""
    found, width, columns = [], shape.cell, shape.columns
    for gpu in node.gpus[:columns]:
        text, own = (
            with_load(metric.cell(gpu), metric.share(gpu), bars=shape.bars)
            if gpu.state == "ok"
            else LOST_CELL
            if gpu.state == "lost"
            else ERROR_CELL
        )
        found.append(fit(text, own if style is None else style, width))
    lost = min(missing_gpus(node), columns - len(found))
    rest = (fit(*LOST_CELL, width),) * lost + (fit(*NO_CELL, width),) * (columns - len(found) - lost)
    return (*found, *rest)


# ---- the GPU grid as rows --------------------------------------------------------------------------------------------

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
    tail: int
    """Cells of the columns of memory and utilization, or of utilization alone."""
    spark: int = 0
    """Cells of the curve of the last minutes, at the end of a line whose flags leave room."""
    bars: bool = False
    """Whether bars show the load of a cell, because there are no colours."""

    @property
    def rest(self) -> int:
        """Cells right of the GPU cells."""
        return self.width - 2 - self.name - self.columns * self.cell

    @property
    def end(self) -> int:
        """The cell behind the curve: flags have room before it."""
        return min(self.width, self.width - self.rest + self.tail + SPARK_FROM + self.spark)


MEMORY, UTILIZATION = 8, 6
FLAGS = 9
"""Cells that flags need beside memory and utilization. With fewer they take the place of memory."""

SPARK, SPARK_LEAST, SPARK_FROM = 16, 8, 24
SPARK_EVERY: Seconds = 60.0
"""What a cell of the curve stands for. It changes once a minute: a row of it is a hundred bytes."""


def layout(width: int, names: int, gpus: int, metric: Metric, *, bars: bool = False, spark: int = 0) -> GridLayout:
    """Fit a line: roomy cells if flags keep their room, else tight ones; then the tail; then the name gives way.
    `spark`: the most cells of a curve."""
    name, tight, both = min(names, max(6, width // 3)), metric.width - 1, MEMORY + UTILIZATION
    for cell, tail, flags in ((metric.width, both, FLAGS), (tight, both, 0), (tight, UTILIZATION, 0)):
        made = GridLayout(width, name, gpus, cell, tail, bars=bars)
        if made.rest >= tail + flags:
            spark = min(spark, made.rest - tail - 2)
            return made._replace(spark=spark if spark >= SPARK_LEAST else 0)
    made = GridLayout(width, name, gpus, tight, 0, bars=bars)
    if made.rest >= 0:
        return made
    name = min(name, 8)
    return made._replace(name=name, columns=min(gpus, max(1, (width - 2 - name) // tight)))


def head(shape: GridLayout, sort: str) -> tuple[Span, ...]:
    """The names of the columns; the GPU numbers stand over the values, not over their sign."""
    gpus = "".join(f"{index} ".rjust(shape.cell) for index in range(shape.columns))
    both = f"{f'mem max{MEM.arrow(sort)}':>{MEMORY}}{UTIL.headed(sort):>{UTILIZATION}}"
    tail = both[-shape.tail :] if shape.tail else ""
    names = f"  {NODE.headed(sort):<{shape.name}}{gpus}{tail}"
    spark = f"util {shape.spark}m".ljust(shape.spark).rjust(shape.end - len(names)) if shape.spark else ""
    return (Span(names + spark, "head"),)


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


FIRST_FLAG = 3
"""Cells of `HOT`."""


def summary_cells(found: NodeSummary, shape: GridLayout, style: str = "") -> tuple[Span, ...]:
    """Memory and utilization in their columns, then the flags. Long flags take the column of memory."""
    (memory, used), most, load = found.unknown, found.memory_used_mib, found.utilization_pct
    memory, used = memory if most is None else mib(most), used if load is None else f"{load:.0f}%"
    numbers = f"{memory:>{MEMORY}}{used:>{UTILIZATION}}"[-shape.tail :] if shape.tail else ""
    needed = sum(cell_width(flag.text) + 2 for flag in found.flags)
    shown: tuple[Span, ...] = (Span(numbers, style),) if numbers else ()
    flags = found.flags
    if needed > shape.rest - len(numbers):
        first = join_flags(flags[:1], MEMORY - 1) if shape.tail > UTILIZATION else ()
        if load is None:  # there is no load to keep
            numbers, shown = "", ()
        elif first:  # in the column of memory; the load keeps its own
            pads = Span(" " * (MEMORY - 1 - cell_width(first[0].text)))
            shown, flags = (GAP, *first, pads, Span(numbers[-UTILIZATION:], style)), flags[1:]
        elif shape.rest - len(numbers) < FIRST_FLAG + 2:
            numbers, shown = "", ()
    others = join_flags(flags, shape.rest - len(numbers) - (2 if numbers else 1))
    return (*shown, BLANK if numbers else GAP, *others) if others else shown


def silent_cells(node: Node | None, why: Span, shape: GridLayout) -> tuple[Span, ...]:
    """The cells of a node that does not answer: unknown, and why. A long reason takes their place."""
    columns = 0 if node is None else min(max(len(node.gpus), node.gpus_expected or 0), shape.columns)
    unknown = fit(*UNKNOWN_CELL, shape.cell)
    if columns and cell_width(why.text) + 1 <= shape.rest:
        return (*(unknown,) * columns, *(fit(*NO_CELL, shape.cell),) * (shape.columns - columns), GAP, why)
    return (unknown, GAP, Span(shorten(why.text, shape.width - 2 - shape.name - shape.cell - 1), why.style))


def rank_of(source: Source | None, found: NodeSummary | None) -> int:
    """The rank of a node. The health of its source comes before the last values of its GPUs."""
    health = "ok" if source is None else source.health
    if health in ("down", "off"):
        return DOWN if health == "down" else OFF
    return LATE if found is None or (health == "late" and found.rank == WELL) else found.rank


def sparkline(history: Iterable[Series], cells: int, now: Instant) -> str:
    """`▇▇▇▁▁`: the mean utilization of each of the last whole minutes; blank where nothing was read."""
    first = math.floor(now / SPARK_EVERY) - cells
    minutes: list[list[float]] = [[] for _ in range(cells + 1)]
    for series in history:
        for offset, used in zip(series.offsets, series.values, strict=True):
            minute = math.floor((now + offset) / SPARK_EVERY) - first
            if minute >= 0 and not math.isnan(used):
                minutes[minute].append(used)
    means = (sum(values) / len(values) if values else None for values in minutes[:cells])
    return "".join(" " if mean is None else HEIGHTS[min(7, int(mean / 12.5))] for mean in means)


def with_curve(spans: tuple[Span, ...], curve: str, end: int) -> tuple[Span, ...]:
    """The line with the curve before the cell `end`, if there is room."""
    left = end - sum(cell_width(span.text) for span in spans) - len(curve)
    return (*spans, Span(" " * left), Span(curve, "accent")) if curve and left > 0 else spans


def node_view(
    name: str, node: Node | None, listed: SchedulerNode | None, source: Source | None, why: Span, metric: Metric,
    shape: GridLayout, now: Instant, spark: str = "",
) -> NodeView:  # fmt: skip
    """One node's line. `why` is the problem of its source, `spark` the curve of its last minutes."""
    found = None if node is None else node_summary(node, now, listed)
    rank, health = rank_of(source, found), "ok" if source is None else source.health
    if found is not None and health == "late":
        found = found._replace(flags=(why, *(flag._replace(style="dim") for flag in found.flags)))
    shown = EMPTY if found is None or health in ("down", "off") else found
    return NodeView(
        Row(name, partial(node_cells, name, node, source, why, metric, shape, now, spark, rank, shown)), rank, shown
    )


EMPTY = NodeSummary(WELL)


def node_cells(
    name: str, node: Node | None, source: Source | None, why: Span, metric: Metric, shape: GridLayout, now: Instant,
    spark: str, rank: int, found: NodeSummary,
) -> tuple[Span, ...]:  # fmt: skip
    """The cells of one node's line."""
    label = Span(pad(shorten_middle(name, shape.name - 1), shape.name), "dim" if rank in (OFF, LATE) else "")
    if node is None or found is EMPTY:
        return (SIGNS.get(rank, BLANK), label, *silent_cells(node, why, shape))
    if source is not None and source.health != "ok":
        return (BLANK, label, *gpu_cells(node, metric, shape, "dim"), *summary_cells(found, shape, "dim"))
    worst = (CRIT, "crit") if any(flag.style == "crit" for flag in found.flags) else (WARN, "warn")
    sign = SIGNS.get(rank) or Span(worst[0] + " ", worst[1])
    is_old = node.gpus_at is not None and source is not None and now - node.gpus_at > LATE_AFTER * source.period
    style = "dim" if is_old else None  # the rest of the node answers
    cells = (*gpu_cells(node, metric, shape, style), *summary_cells(found, shape, style or ""))
    return with_curve((sign, label, *cells), spark, shape.end)


# ---- the fields ----------------------------------------------------------------------------------------------------

RANKS = {
    DOWN: "down", LOST: "lost", HOT: "hot", THROTTLED: "throttled", FAULTY: "faulty", LATE: "late", WELL: "ok",
    OFF: "off",
}  # fmt: skip
"""The status of a node by its rank."""


def status_of(view: NodeView) -> str:
    """The status of a node in a word."""
    words = {flag.text.partition(" ")[0] for flag in view.summary.flags}
    return "warm" if view.rank == HOT and "warm" in words else RANKS[view.rank]


Entry = tuple[str, NodeView]
"""A node, by its name."""


def of_gpus(
    each: Callable[[Gpu], float | None], first: Callable[[NodeSummary], float | None] | None = None
) -> Callable[[Entry, State], Iterator[float | None]]:
    """The number of a node, by which it is sorted (without `first` the greatest), and those of its GPUs."""

    def values(one: Entry, state: State) -> Iterator[float | None]:
        node, summary = state.nodes.get(one[0]), one[1].summary
        gpus = node.gpus if node else ()
        current = (each(gpu) for gpu in gpus if gpu.state == "ok" and summary is not EMPTY)
        known = (number for number in current if number is not None)
        yield max(known, default=None) if first is None else first(summary)
        yield from map(each, gpus)

    return values


def users_of(one: Entry, state: State) -> Iterator[str | None]:
    """The users of the processes on its GPUs; `me` is the user of the dashboard, on its cluster."""
    node = state.nodes.get(one[0])
    users = {process.user for gpu in (node.gpus if node else ()) for process in gpu.processes}
    cluster = None if node is None else state.clusters.get(node.cluster)
    yield from users
    yield "me" if cluster is not None and cluster.me in users - {None} else None


def notes_of(one: Entry, _state: State) -> Iterator[str]:
    """Its flags, and why it does not answer."""
    yield from (flag.text for flag in one[1].summary.flags)
    yield one[1].row.spans[-1].text


NODE = Column[Entry, State]("node", lambda one, _: (one[0],), head="NODE")
UTIL = Column[Entry, State](  # the least used first: one looks for idle GPUs
    "util", of_gpus(lambda gpu: gpu.utilization_pct, lambda found: found.utilization_pct), "%", upwards=True
)
MEM = Column[Entry, State](
    "mem", of_gpus(lambda gpu: None if gpu.memory_used_mib is None else gpu.memory_used_mib / 1024), "GiB"
)
GRID_FIELDS: tuple[Column[Entry, State], ...] = (
    NODE,
    Column("status", lambda one, _: (status_of(one[1]),)),
    Column("user", users_of),
    Column("temp", of_gpus(lambda gpu: gpu.temperature_c), ""),
    UTIL,
    MEM,
    Column("power", of_gpus(lambda gpu: gpu.power_w), ""),
    Column("cluster", lambda one, state: (node.cluster if (node := state.nodes.get(one[0])) else None,)),
    Column("note", notes_of),
)  # fmt: skip
"""What nodes are filtered and sorted by."""


def chosen_row(entry: Entry, table: Table[Entry, State], state: State) -> Row:
    """A node with the columns that a person chose, then its flags, or why it does not answer."""
    _, (row, _, found) = entry
    texts = join_flags(found.flags if found is not EMPTY else row.spans[-1:], max(0, table.rest - 2))
    return Row(row.key, (*row.spans[:2], *row_cells(table.columns, entry, state), BLANK, *texts))


# ---- all nodes -----------------------------------------------------------------------------------------------------


SETTLE: Seconds = 15.0
"""How long a node keeps its place after it recovered: a node that is hot every other second must not jump."""


ALERT_RANKS = {Concern.CRITICAL: LOST, Concern.WARNING: FAULTY, Concern.PENDING: LATE, Concern.NONE: OFF}
"""The rank of a node with an alert, if its own rank is not worse."""


History = Callable[[str, str, Seconds], Series]
"""Backend.history."""

SPARKS_AT_ONCE = 12


class Grid:
    """Rows of all nodes. A node whose values did not change keeps its row."""

    def __init__(self) -> None:
        self._ranks: dict[str, tuple[int, Instant]] = {}
        """Of each node, the rank that it is sorted by, and when it last had that rank."""
        self._views: dict[str, tuple[tuple[object, ...], NodeView]] = {}
        self.head: tuple[Span, ...] = ()
        self._shown: list[str] = []
        self._sparks: dict[str, tuple[tuple[float, int], str]] = {}
        """Of each node, the minute and the cells of its curve, and the curve."""

    def rows(
        self,
        state: State,
        metric: Metric,
        width: int,
        sort: str = "worst",
        query: str = "",
        alerts: Mapping[str, Concern] = {},
        history: History | None = None,
        *,
        bars: bool = False,
        chosen: Sequence[str] = (),
    ) -> list[Row]:
        """The lines that match the filter, in this order. `alerts`: the concern of each node that has one. `bars`:
        whether there are no colours. `chosen`: the columns that a person chose in place of the GPUs."""
        names = node_names(state)
        gpus = max((max(len(node.gpus), node.gpus_expected or 0) for node in state.nodes.values()), default=0)
        longest = max((cell_width(name) for name in names), default=4)
        spark = 0 if history is None else SPARK
        shape = layout(width, max(4, longest) + 1, max(gpus, 1), metric, bars=bars, spark=spark)
        if history is not None and shape.spark:
            self._update_sparks(state, shape.spark, history)
        columns = chosen_columns(GRID_FIELDS, chosen, width)
        self.head = head(shape, sort)
        if columns:
            self.head = (Table(width, shape.name, columns).head(NODE, sort),)
        views = [(name, self._view(name, state, metric, shape)) for name in names]
        self._views = {name: self._views[name] for name in names}
        views = filtered(views, query, GRID_FIELDS, state)
        ranks = {name: min(one.rank, ALERT_RANKS[alerts.get(name, Concern.NONE)]) for name, one in views}
        self._ranks = {name: self._rank(name, rank, state.at) for name, rank in ranks.items()}
        views.sort(key=lambda one: (self._ranks[one[0]][0], natural_key(one[0])))
        views = ordered(views, sort, GRID_FIELDS, state)
        self._shown = [name for name, _ in views]
        if not columns:
            return [one.row for _, one in views]
        table = Table(width, shape.name, columns)
        return [chosen_row(one, table, state) for one in views]

    def entries(self) -> Sequence[Entry]:
        """What can be filtered."""
        return [(name, view) for name, (_, view) in self._views.items()]

    def _update_sparks(self, state: State, cells: int, history: History) -> None:
        """Compute some of the outdated curves, those on top first: not all of 300 nodes in one update."""
        key = state.at // SPARK_EVERY, cells
        nodes = [state.nodes[name] for name in self._shown or state.nodes if name in state.nodes]
        for node in [one for one in nodes if self._sparks.get(one.name, ("", ""))[0] != key][:SPARKS_AT_ONCE]:
            read = (history(f"{node.name}/{gpu.index}", "utilization", (cells + 1) * SPARK_EVERY) for gpu in node.gpus)
            self._sparks[node.name] = key, sparkline(read, cells, state.at)

    def _rank(self, name: str, rank: int, now: Instant) -> tuple[int, Instant]:
        held = self._ranks.get(name)
        return held if held is not None and held[0] < rank and 0 <= now - held[1] < SETTLE else (rank, now)

    def _view(self, name: str, state: State, metric: Metric, shape: GridLayout) -> NodeView:
        node, listed = state.nodes.get(name), state.scheduler_nodes.get(name)
        source, why = state.sources.get(f"node:{name}"), NOTHING
        if source is not None and source.health != "ok":
            why = source_text(source, state.at, failing_server(source, state.sources))
            why = why._replace(text=clean(why.text, 400))
        spark = self._sparks.get(name, ("", ""))[1] if shape.spark else ""
        key = (node, listed, None if source is None else source.health, why, metric, shape, spark)
        kept = self._views.get(name)
        if kept is None or kept[0][0] is not node or kept[0][1:] != key[1:]:
            kept = self._views[name] = (key, node_view(name, node, listed, source, why, metric, shape, state.at, spark))
        return kept[1]

    def ranks(self) -> list[int]:
        return [one.rank for _, one in self._views.values()]


def node_names(state: State) -> list[str]:
    """Every watched node, whether it has answered or not."""
    watched = [source.name.removeprefix("node:") for source in state.sources.values() if source.kind == "node"]
    return watched + [name for name in state.nodes if f"node:{name}" not in state.sources]
