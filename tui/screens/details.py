"""Screens of one thing, with links to others: a run, a job, a node, an attempt, an alert, a disk, a moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from textual import events
from textual.app import ComposeResult

from trainmon.lib import Instant, Seconds, clean, counted, shorten
from trainmon.model import Run, State
from tui.backend import Backend
from tui.charts.chart import View
from tui.charts.render import LEAST_HEIGHT
from tui.keys import bindings
from tui.modals import TextPrompt
from tui.panes import (
    AlertPane,
    AttemptPane,
    ChangesPane,
    FactsPane,
    GpuTable,
    JobPane,
    LogPane,
    OneDiskPane,
    Pane,
    PlotPane,
    ReportPane,
    RunPane,
    WandbPane,
)
from tui.screens.base import PaneScreen, StateScreen
from tui.services.changes import Changes
from tui.services.terminal import for_samples, meant
from tui.style import Link, Span, age, link_of
from tui.views.alert_detail import Moment, log_line, step_of
from tui.views.news import clock_text
from tui.views.nodes import missing_gpus
from tui.widgets import Heading, KeyedLines

# ---- screens about one run, its log, its charts, a job, a node, a disk or an alert -----------------------------------

VIEW_EVERY: Seconds = 10.0


class LinkedScreen(StateScreen):
    """A header, one pane about a run, its charts, a job, a node or another thing, and the footer; Esc goes back."""

    BINDINGS = bindings("detail")

    def __init__(self, about: Link, pane: Pane) -> None:
        """`pane`: its id is the name of the screen in the key table."""
        super().__init__()
        self.about = about
        self.pane = pane

    def compose(self) -> ComposeResult:
        yield from (self.header, self.pane, self.foot)

    def on_mount(self) -> None:
        self.foot.at(str(self.pane.id))
        self.pane.focus_body()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        """Open the target of the link. A link to the screen below closes this one, so that screens do not pile up."""
        link, stack = link_of(event.key), self.app.screen_stack
        if link is None or self.app.screen is not self:
            return
        below = stack[-2] if len(stack) > 1 else None
        if isinstance(below, LinkedScreen) and below.about == link:
            self.dismiss()
        else:
            self.dashboard.open(link)


class FindScreen(LinkedScreen, PaneScreen):
    """The charts of a run, with a line to type a filter in."""

    def compose(self) -> ComposeResult:
        yield from (self.header, self.pane, self.find, self.foot)


class LogScreen(FindScreen):
    """The same pane as on the main screen, with all the room."""

    BINDINGS = bindings("log-screen")


LEAST_FACTS = 8
"""Lines of a run's facts that its charts and its log leave."""


class RunScreen(LinkedScreen):
    """The charts of loss and throughput, the details, and the end of the log."""

    BINDINGS = bindings("samples")

    def __init__(self, run: str, backend: Backend) -> None:
        pane = RunPane("", backend, id="run")
        super().__init__(Link("run", run), pane)
        self.charts = WandbPane(backend, id="run-charts")
        self.charts.brief = True
        self.log_pane = LogPane(backend, id="run-log")
        for one in (pane, self.charts, self.log_pane):
            one.run = run
        for widget in (self.charts.lines, self.log_pane.view, self.log_pane.lines):
            widget.can_focus = False  # its keys are those of the details

    def compose(self) -> ComposeResult:
        yield from (self.header, self.charts, self.pane, self.log_pane, self.foot)

    def fit(self, run: Run | None) -> None:
        """Give charts and log a part of the screen, if there is something to show."""
        rows = self.app.size.height - 2
        charts, tail = max(LEAST_HEIGHT + 2, rows // 4), max(5, rows // 4)
        shown = {
            self.charts: run is not None and run.has_charts and rows >= charts + tail + LEAST_FACTS - 1,
            self.log_pane: run is not None and run.log is not None and rows >= tail + LEAST_FACTS,
        }
        for pane, is_shown in shown.items():
            pane.styles.height, pane.display = tail if pane is self.log_pane else charts, is_shown

    def show(self, state: State) -> None:
        run = state.runs.get(self.about.name)
        self.fit(run)
        super().show(state)
        context = "run" if run is None or run.spec.wandb is None else "run-wandb"
        if self.foot.context != context:
            self.foot.at(context)

    # ---- its samples ----

    def action_save_samples(self) -> None:
        """Ask for a folder, and fetch the newest sample of each metric into it."""
        app, backend, name = self.app, self.dashboard.backend, self.about.name
        run, title = self.dashboard.shown.runs.get(name), clean(name)
        samples = () if run is None or run.wandb is None else run.wandb.samples
        if not samples:
            app.notify(f"{title} has logged no images or videos", severity="warning", markup=False)
            return
        notify = partial(app.notify, title=f"samples of {title}", timeout=15, markup=False)

        def save_into(folder: str | None) -> None:
            if folder:
                target = str(meant(folder))
                notify(f"fetching into {clean(target)}")
                backend.save_samples(name, target, lambda text: app.call_later(notify, clean(text)))

        question = f"Fetch {counted(len(samples), 'sample')} of {title}"
        line = "folder on this machine (created if missing)"
        prompt = TextPrompt(question, line, verb="fetches", value=str(for_samples(name, os.environ)))
        app.push_screen(prompt, save_into)


FRAME = 3
"""Lines of the table's frame and heads."""


class NodeScreen(LinkedScreen):
    """The table, the plots if there is room, and facts with links to the node's jobs."""

    def __init__(self, node: str, gpu: str = "") -> None:
        self.table = GpuTable(node, id="node")
        self.table.first = gpu
        super().__init__(Link("node", node), self.table)
        self.gpus = 0
        self.facts = FactsPane(node, id="node-facts")

    def compose(self) -> ComposeResult:
        self.plots = PlotPane(self.about.name, self.dashboard.backend, id="node-plots")
        yield from (self.header, self.table, self.plots, self.facts, self.foot)

    def on_mount(self) -> None:
        self.fit()
        self.view_node()
        self.dashboard.backend.read_node_events(self.about.name, partial(self.app.call_later, self.facts.add_events))
        self.set_interval(VIEW_EVERY, self.view_node)

    def view_node(self) -> None:
        """Request that the node is connected to as long as this screen is open."""
        self.dashboard.backend.view_node(self.about.name)

    def on_resize(self) -> None:
        self.fit()

    def show(self, state: State) -> None:
        node = state.nodes.get(self.about.name)
        self.gpus = 0 if node is None else sum(1 + len(gpu.instances) for gpu in node.gpus) + missing_gpus(node)
        self.fit()
        super().show(state)

    def fit(self) -> None:
        """Give the table a line per GPU. The plots are shown only where enough is left for the facts as well."""
        for pane, height in zip((self.table, self.plots), heights(self.app.size.height, self.gpus), strict=True):
            pane.styles.height, pane.display = max(1, height), height > 0

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.pane = next((pane for pane in (self.table, self.facts) if pane in event.widget.ancestors), self.pane)

    def on_pane_selected(self, event: Pane.Selected) -> None:
        gpu = self.table.selected_gpu()
        if event.pane is self.table and gpu is not None:
            self.plots.gpu = gpu.index
            self.plots.again()


def heights(screen: int, gpus: int) -> tuple[int, int]:
    """Lines of the table and of the plots on a screen this high."""
    table = min(max(gpus, 1) + FRAME, max(6, (screen - 2) // 2))
    plots = min(16, (screen - 2 - table) // 2) if gpus else 0
    return table, plots if plots >= LEAST_HEIGHT + 2 else 0


PANES = {"job": JobPane, "alert": AlertPane, "attempt": AttemptPane, "report": ReportPane}
"""The pane of a screen about one thing, by the kind of its link."""


def screen_for(link: Link, backend: Backend, changes: Changes, marked: Callable[[], Sequence[str]]) -> StateScreen:
    """A new screen for a link. `marked` names the runs that charts show beside theirs."""
    name = link.name
    match link.kind:
        case "run":
            return RunScreen(name, backend)
        case "node":
            return NodeScreen(*name.split("/"))
        case "log":
            log = LogPane(backend, id="log-screen")
            log.run = name
            return LogScreen(link, log)
        case "wandb":
            charts = WandbPane(backend, id="wandb-screen")
            charts.run, charts.marked = name, marked
            return FindScreen(link, charts)
        case "changes":
            pane = ChangesPane(name, backend, id="changes")
            pane.changes = changes
            return LinkedScreen(link, pane)
        case "disk":
            return LinkedScreen(link, OneDiskPane(name, backend, id="disk-screen"))
        case kind:
            return LinkedScreen(link, PANES[kind](name, backend, id=kind))


# ---- the screen of a run at one time ---------------------------------------------------------------------------------

AROUND: Seconds = 3_600.0
"""The range of the charts around a moment."""

LAID_OUT_AFTER: Seconds = 0.05

CHARTS_FROM = 20
"""Lines of a screen that shows charts above the log."""


class MomentScreen(PaneScreen):
    """A run at one time. Enter opens the run; `o` and Esc go back."""

    BINDINGS = bindings("detail", "moment")

    def __init__(self, moment: Moment, now: Instant, backend: Backend) -> None:
        super().__init__()
        self.moment = moment
        self.title_line = Heading()
        self.charts = WandbPane(backend, id="wandb-moment")
        self.charts.run = moment.run
        self.charts.charts.moment = moment.at
        # of a recent moment the window ends with the curves, and follows them
        end = moment.at + AROUND / 2
        self.charts.view = View(by_time=True, width=AROUND, end=end if end < now else None)
        self.log_pane = LogPane(backend, id="log-moment")
        self.log_pane.run = moment.run
        self.pane = self.log_pane
        self._has_found = False

    def compose(self) -> ComposeResult:
        yield from (self.header, self.title_line, self.charts, self.log_pane, self.find, self.foot)

    def on_mount(self) -> None:
        self.foot.at("moment")
        self.log_pane.view.focus()
        self.set_timer(LAID_OUT_AFTER, self._show_moment)

    def show(self, state: State) -> None:
        run, at = state.runs.get(self.moment.run), self.moment.at
        when = f"{clock_text(at, state.at)}, {age(state.at - at)} ago"
        text = f"{clean(self.moment.run)} at {when}: {self.moment.text}"
        self.title_line.set_spans((Span(shorten(text, self.app.size.width - 2), "warn"),))
        self.charts.display = run is not None and run.has_charts and self.app.size.height >= CHARTS_FROM
        super().show(state)
        self._show_moment()

    def _show_moment(self) -> None:
        """Go to the chart and to the log line of that time, once they are laid out."""
        run, view = self.dashboard.shown.runs.get(self.moment.run), self.log_pane.view
        if self._has_found or run is None or not view.size.height or not view.text.lines:
            return
        self._has_found = True
        if self.moment.metric and self.charts.lines.move_to(self.moment.metric):
            self.charts.again()
        line = log_line(self.moment, run)
        if line is not None:
            view.show_line(line)
        else:
            self.log_pane.lost = f"no line of that time is among the last {len(view.text.lines):,}: this is the end"
            self.log_pane.open_at(self.moment.at, step_of(self.moment, run), self.moment.evidence)
            self.log_pane.again()

    def action_open_run(self) -> None:
        self.dashboard.open(Link("run", self.moment.run))
