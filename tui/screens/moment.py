"""The screen of a run at one time: what happened, the charts around it, and the log lines of that time."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from trainmon.lib import Instant, Seconds, clean, shorten
from trainmon.model import State
from tui.backend import Backend
from tui.charts import View
from tui.keys import bindings
from tui.panes import LogPane, WandbPane
from tui.screens.base import PaneScreen
from tui.style import Span, age
from tui.views.alert_detail import Moment, log_line
from tui.views.changes import clock_text
from tui.widgets import Heading, Link

AROUND: Seconds = 3_600.0
"""The range of the charts around a moment."""

LAID_OUT_AFTER: Seconds = 0.05

CHARTS_FROM = 20
"""Lines of a screen that shows charts above the log."""


class MomentScreen(PaneScreen):
    """A run at one time. Enter opens the run; `o` and Esc go back."""

    CONTEXT = "moment"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("detail", "moment")]

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
        self.log_pane = LogPane(id="log-moment")
        self.log_pane.run = moment.run
        self.pane = self.log_pane
        self._has_found = False

    def compose(self) -> ComposeResult:
        yield from (self.header, self.title_line, self.charts, self.log_pane, self.find, self.foot)

    def on_mount(self) -> None:
        self.foot.at(self.CONTEXT)
        self.log_pane.view.focus()
        self.set_timer(LAID_OUT_AFTER, self._show_moment)

    def show(self, state: State) -> None:
        run, at = state.runs.get(self.moment.run), self.moment.at
        self.header.show(state)
        when = f"{clock_text(at, state.at)}, {age(state.at - at)} ago"
        text = f"{clean(self.moment.run)} at {when}: {self.moment.text}"
        self.title_line.set_spans((Span(shorten(text, self.app.size.width - 2), "warn"),))
        self.charts.display = run is not None and run.spec.has_charts and self.app.size.height >= CHARTS_FROM
        for pane in (self.charts, self.log_pane):
            pane.show(state)
        self._show_moment()

    def _show_moment(self) -> None:
        """Go to the chart and to the log line of that time, once they are laid out."""
        state, view = self.dashboard.shown, self.log_pane.view
        run = None if state is None else state.runs.get(self.moment.run)
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
            self.log_pane.again()

    def action_open_run(self) -> None:
        self.dashboard.open(Link("run", self.moment.run))

    def action_back(self) -> None:
        if not self.log_pane.clear_filter():
            self.dismiss()
