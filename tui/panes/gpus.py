"""`2 GPUs`: one line a node, one cell a GPU, the worst node first; who holds them; and the panes of a node's screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainmon.analysis.gpus import Holder, by_user, gaps, holders
from trainmon.analysis.nodes import failing_server
from trainmon.lib import HOUR, Instant, Seconds, cell_width, clean, counted, shorten, shorten_middle
from trainmon.model import Gpu, NodeEvent, State
from tui.backend import Backend
from tui.charts.render import LEAST_WIDTH, Axis, hour_picture, side_by_side
from tui.keys import bindings
from tui.panes.base import BodyPane, Entries, Pane, TablesPane
from tui.style import NOT_APPLICABLE, UNKNOWN, WARN, Row, Span, mib, pad, source_text
from tui.views.actions import Subject
from tui.views.alert_detail import alerts_of
from tui.views.alerts import alert_marks, alert_ranks, with_mark
from tui.views.jobs import folded, on_nodes
from tui.views.node_detail import gpu_head, gpu_rows, history_lines, node_facts, read_ago
from tui.views.nodes import (
    DOWN,
    GRID_FIELDS,
    HOT,
    LATE,
    LOST,
    METRICS,
    NO_DRIVER,
    Grid,
    History,
    Metric,
    node_names,
    node_summary,
    numbers,
    without_driver,
    worst_gpu,
)
from tui.views.table import (
    Column,
    Table,
    chosen_columns,
    fact_text,
    fields_of,
    filtered,
    ordered,
    row_cells,
    value,
)
from tui.widgets import KeyedLines, Picture

# ---- who holds GPUs: a line a user, or a job -------------------------------------------------------------------------

USER = "user:"
"""Before the key of the row of a user. That of a job is the key of the job."""


def held(count: int | None) -> Span:
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
    cell=lambda one, _: held(len(one.jobs) or None),
)  # fmt: skip
HOLDER_COLUMNS: tuple[Column[Holder, State], ...] = (
    Column("gpus", lambda one, _: (one.held,), "", head="GPUS", width=6, cell=lambda one, _: held(one.held)),
    Column("busy", lambda one, _: (one.busy,), "", head="BUSY", width=6, cell=lambda one, _: held(one.busy)),
    Column("idle", lambda one, _: (one.idle,), "", head="IDLE", width=6, from_width=36,
           cell=lambda one, _: held(one.idle)),
    Column("mem", lambda one, _: (None if (used := one.memory_mib) is None else used / 1024,), "GiB", head="MEM",
           width=7, from_width=50,
           cell=lambda one, _: value(NOT_APPLICABLE if (used := one.memory_mib) is None else mib(used))),
)  # fmt: skip
USER_FIELDS = fields_of((JOBS, *HOLDER_COLUMNS), OWNER, JOB, Column("node", lambda one, _: one.nodes))
JOB_FIELDS = fields_of((OWNER, *HOLDER_COLUMNS), JOB, Column("node", lambda one, _: one.nodes))
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
    usual = tuple(column for column in (first, *HOLDER_COLUMNS) if column.from_width <= width)
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
    return table.head(JOB if by_job else OWNER, sort), rows


# ---- `2 GPUs` --------------------------------------------------------------------------------------------------------

EMPTY = (
    ("No node is watched yet. Give host names on the command line:", ""),
    ("", ""),
    ("    trainmon-tui gpu-001 gpu-002", "dim"),
    ("", ""),
    ("or list nodes in trainmon.toml. `trainmon-tui init` writes that file.", ""),
)


class GpusPane(TablesPane):
    """The grid of all GPUs. `v` changes the metric of its cells, then shows the users and the jobs that hold GPUs."""

    NUMBER = "2"
    NAME = "GPUs"
    ORDER = "worst"
    FIELDS = GRID_FIELDS
    VIEWS = {"nodes": GRID_FIELDS, "users": USER_FIELDS, "jobs": JOB_FIELDS}  # noqa: RUF012 - never changed
    KIND = "node"
    BINDINGS = bindings("gpus")

    def __init__(self, history: History | None = None, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        """`history`: that of the backend, for the curves of the last minutes."""
        super().__init__(id=id)
        self.history = history
        self.metric: Metric = METRICS[0]
        self.grid = Grid()

    def entries(self, state: State) -> Entries:
        if self.view == "nodes":
            return self.grid.entries(), state
        found = holders(state)
        return (by_user(found) if self.view == "users" else [one for one in found if one.jobs]), state

    def subject_of(self, key: str) -> Subject | None:
        found = super().subject_of(key)
        return found if found is None or self.view == "nodes" else ("job", key) if self.view == "jobs" else None

    def action_metric(self) -> None:
        """Show the next metric, then who holds GPUs; the columns that a person chose have no metric."""
        if self.view == "nodes" and not self.columns and self.metric is not METRICS[-1]:
            self.metric = METRICS[METRICS.index(self.metric) + 1]
            self.again()
        else:
            self.metric = METRICS[0]
            self.action_next_view()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        """Enter on a user shows the user's jobs that hold GPUs, or, without any, the nodes."""
        super().on_keyed_lines_chosen(event)
        if event.key.startswith(USER):
            event.stop()
            user = event.key.rpartition("/")[2]
            self.filter = f"user={user}"
            self.action_next_view(
                "jobs" if any(one.jobs and one.user == user for one in holders(self.state)) else "nodes"
            )

    def draw(self, state: State, width: int) -> None:
        if not node_names(state):
            self.show_sentences(*EMPTY)
            return
        if self.view != "nodes":
            found = filtered(self.entries(state)[0], self.filter, self.fields, state)
            shown, noun = ordered(found, self.sort, self.fields, state), self.view.removesuffix("s")
            head, rows = holder_rows(shown, state, width, self.sort, self.columns, by_job=self.view == "jobs")
            self.head(head)
            self.show_rows(rows, noun, f"No {noun} is known to hold a GPU.")
            self.caption(f"{counted(len(shown), noun)}, {sum(one.is_idle for one in shown)} idle", self.view)
            return
        ranks, alerts = alert_ranks(state).nodes, alert_marks(state).nodes
        bars = self.app.no_color or self.is_ascii
        rows = self.grid.rows(
            state, self.metric, width, self.sort, self.filter, ranks, self.history, bars=bars, chosen=self.columns
        )
        self.head(*self.grid.head)
        if alerts:
            rows = [with_mark(row, alerts.get(row.key)) for row in rows]
        self.show_rows(rows, "node")
        self.caption(grid_caption(state, self.grid.ranks()), "" if self.columns else self.metric.title)

    def footnote(self, state: State) -> tuple[str, str] | None:
        """The selected node in full: its line may be cut; below users and jobs, what is not known."""
        if self.view != "nodes":
            return gaps(holders(state), state), "warn"
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
    """A sentence about one node, and its style. With several clusters, it names that of the node."""
    node, source = state.nodes.get(name), state.sources.get(f"node:{name}")
    several = len({one.cluster for one in state.sources.values()} - {""}) > 1
    whose = f"{name} of {source.cluster}" if source is not None and several else name
    if source is not None and source.health != "ok":
        server = failing_server(source, state.sources)
        text, style = source_text(source, now, server, hinted=True)
        hint = (server or source).hint
        return clean(f"{whose}: {text}" + (f"; {hint}" if hint else "")), style or "dim"
    if node is None:
        return "", "dim"
    flags = node_summary(node, now, state.scheduler_nodes.get(name)).flags
    errors = (f"gpu{gpu.index}: {gpu.error}" for gpu in node.gpus if gpu.state != "ok" and gpu.error)
    note = node.note or (NO_DRIVER if without_driver(node) else "")
    cut = [gpu for gpu in node.gpus if gpu.instances]
    why = (
        f"{numbers([gpu.index for gpu in cut])}: utilization of instances {cut[0].instances[0].utilization}"
        if cut
        else ""
    )
    text = "  ".join(part for part in (*(flag.text for flag in flags), *errors, why, note) if part)
    style = "crit" if any(flag.style == "crit" for flag in flags) else "warn" if flags else "dim"
    return (clean(f"{whose}: {text}" if text else whose), style) if text or several else ("", "dim")


# ---- the three panes of a node's screen ------------------------------------------------------------------------------


class NodePane(Pane):
    """A pane about one node."""

    def __init__(self, node: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.node = node

    def subjects(self) -> tuple[Subject, ...]:
        return (("node", self.node),)


class GpuTable(NodePane):
    """Every number of every GPU. The selected GPU is plotted."""

    NAME = "GPUs"
    is_placed = False
    """Whether the cursor has been put on a GPU: only once, a person moves it then."""
    first = ""
    """That GPU; empty: the worst one."""

    def copy_text(self) -> str | None:
        """The node's name."""
        return clean(self.node)

    def draw(self, state: State, width: int) -> None:
        node, source = state.nodes.get(self.node), state.sources.get(f"node:{self.node}")
        if node is None:
            self.show_sentences(("Nothing has been read from this node yet.", "dim"), caption=clean(self.node))
            return
        is_read = read_ago(node.gpus_at, node, source, state.at)
        self.caption(clean(self.node), is_read)
        self.head(*gpu_head(width))
        self.lines.set_rows(gpu_rows(node, state.at, width, stale=bool(is_read)))
        if node.gpus and not self.is_placed:
            self.is_placed = self.lines.move_to(self.first or str(worst_gpu(node, state.at).index))
        if not node.gpus:
            self.show_message(
                (f"{node.note or NO_DRIVER}." if without_driver(node) else "This node reports no GPU.", "dim")
            )

    def selected_gpu(self) -> Gpu | None:
        """The GPU under the cursor, or that of the instance there."""
        node = self.state.nodes.get(self.node)
        index = (self.lines.cursor_key or "").partition("/")[0]
        return next((gpu for gpu in (node.gpus if node else ()) if str(gpu.index) == index), None)


class FactsPane(NodePane):
    """Processes, host, probe: plain lines that scroll."""

    NAME = "Node"

    events: Sequence[NodeEvent] = ()
    """What the ledger has of its history."""

    def on_mount(self) -> None:
        self.heads.display = False

    def add_events(self, found: Sequence[NodeEvent]) -> None:
        self.events = found
        self.again()

    def copy_text(self) -> str | None:
        """The fact under the cursor, from all its lines: a command must be copied complete."""
        texts = {row.key: row.text for row in self.lines.rows}
        return fact_text([*texts.values()], [*texts].index(self.selected)) if self.selected in texts else None

    def draw(self, state: State, width: int) -> None:
        node, source = state.nodes.get(self.node), state.sources.get(f"node:{self.node}")
        running = on_nodes(state.jobs.values()).get(self.node, [])
        listed, known = state.scheduler_nodes.get(self.node), state.sources
        alerts = tuple(alerts_of(self.node, state, width, "node"))
        open_alerts = (one for one in state.alerts.values() if one.node == self.node and one.is_open)
        odd = {one.subject.partition(" ")[2] for one in open_alerts if one.rule == "slow-link"}
        cluster = next((one.cluster for one in (node, listed, source) if one is not None), "")
        self.caption(clean(f"{self.node} of {cluster}" if cluster else self.node))
        past = [*history_lines(cluster, self.node, state.node_records, self.events, width)]
        self.lines.set_rows(
            node_facts(self.node, node, source, state.at, width, listed, running, known, (*alerts, *past), odd)
        )


REDRAW_EVERY: Seconds = 5.0
"""A column of the plot is about a minute wide. Drawing more often would only cost bytes."""


class PlotPane(BodyPane, NodePane):
    """The last hour of the selected GPU."""

    NAME = "Last hour"

    def __init__(self, node: str, backend: Backend, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(node, id=id)
        self.backend = backend
        self.gpu = 0
        self.body: Picture = Picture()
        self._drawn: tuple[int, int, int] | None = None
        self._drawn_at: Instant = 0.0

    def draw(self, state: State, width: int) -> None:
        height, node = self.body.size.height, state.nodes.get(self.node)
        key = (self.gpu, width, height)
        if self.body.display and key == self._drawn and 0 <= state.at - self._drawn_at < REDRAW_EVERY:
            return
        self.body.display, self.lines.display = True, False
        self._drawn, self._drawn_at = key, state.at
        self.caption(f"gpu{self.gpu}")
        gpu = next((gpu for gpu in (node.gpus if node else ()) if gpu.index == self.gpu), Gpu(index=self.gpu))
        shown = axes(gpu)[: max(1, min(4, width // (LEAST_WIDTH + 2)))]
        each = (width - 2 * len(shown)) // len(shown)
        series = (self.backend.history(f"{self.node}/{self.gpu}", axis.metric, HOUR) for axis, _ in shown)
        pictures = [
            hour_picture(axis, current, one, state.at, each, height, plain=self.is_ascii)
            for (axis, current), one in zip(shown, series, strict=True)
        ]
        self.body.set_lines(side_by_side(pictures))


def axes(gpu: Gpu) -> tuple[tuple[Axis, str], ...]:
    """The four plots of a GPU, the most important first, each with its current value."""
    memory = float(gpu.memory_total_mib or 81_920)
    watts = float(gpu.power_limit_w or 700.0)
    degrees = UNKNOWN if gpu.temperature_c is None else f"{gpu.temperature_c}"
    used = (NOT_APPLICABLE if gpu.mig else UNKNOWN) if gpu.utilization_pct is None else f"{gpu.utilization_pct}"
    power = UNKNOWN if gpu.power_w is None else f"{gpu.power_w:.0f}"
    return (
        (Axis("temperature", "temperature °C", 110.0, ((0, "0"), (50, "50"), (100, "100"))), degrees),
        (Axis("utilization", "utilization %", 100.0, ((0, "0"), (50, "50"), (100, "100"))), used),
        (Axis("power", "power W", watts, ((0, "0"), (watts / 2, f"{watts / 2:.0f}"), (watts, f"{watts:.0f}"))), power),
        (Axis("memory", "memory", memory, ((0, "0"), (memory / 2, mib(int(memory / 2))), (memory, mib(int(memory))))),
         mib(gpu.memory_used_mib)),
    )  # fmt: skip
