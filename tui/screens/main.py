"""The main screen: the panes in the shape that the terminal's size allows."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import NULL_OFFSET, NULL_SPACING, Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from trainmon.model import State
from tui.backend import Backend
from tui.keys import bindings
from tui.modals import Jump, Target
from tui.panes import (
    AlertsPane,
    DiskPane,
    GpusPane,
    HeaderLine,
    LogPane,
    Pane,
    QueuePane,
    RunPane,
    RunsPane,
    Strip,
    WandbPane,
    watched,
)
from tui.screens.base import PaneScreen
from tui.screens.details import LogScreen
from tui.style import NAMES, Chosen, Shape, is_tiny, places, shape, what_is_hidden
from tui.widgets import KeyedLines, Link


class Columns(Layout):
    """Panes in columns. A pane may stand in one column at one width and in another at the next, so none is a widget."""

    name = "columns"

    def __init__(self) -> None:
        self.columns: tuple[tuple[str, ...], ...] = ()
        self.panes: dict[str, Pane] = {}

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        parent.pre_layout(self)
        return [
            WidgetPlacement(Region(*place), NULL_OFFSET, NULL_SPACING, self.panes[number])
            for number, place in places(self.columns, size.width, size.height).items()
            if self.panes[number] in children
        ]


class PaneLayout(Widget):
    """Holds all the panes and shows those of a shape."""

    def __init__(self, panes: dict[str, Pane]) -> None:
        super().__init__(*panes.values(), id="body")
        self._columns = Columns()
        self._columns.panes = panes

    @property
    def layout(self) -> Layout:
        return self._columns

    def stand(self, columns: tuple[tuple[str, ...], ...]) -> None:
        """Show the panes of these columns and no others."""
        self._columns.columns = columns
        shown = {number for column in columns for number in column}
        for number, pane in self._columns.panes.items():
            pane.display = number in shown
        self.refresh(layout=True)


class MainScreen(PaneScreen):
    """Runs, GPUs, disks, alerts, the queue, and of the selected run its log and its W&B charts."""

    PLACE = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("main")]

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.header = HeaderLine()
        self.strip = Strip()
        self.runs = RunsPane(id="runs")
        self.gpus = GpusPane(id="gpus")
        self.disk = DiskPane(id="disk")
        self.alerts = AlertsPane(id="alerts")
        self.log_pane = LogPane(id="log")
        self.queue = QueuePane(id="queue")
        self.wandb = WandbPane(backend, id="wandb")
        self.run_pane = RunPane(id="run")
        self.panes: dict[str, Pane] = {
            "1": self.runs, "7": self.queue, "4": self.log_pane, "2": self.gpus, "3": self.disk,
            "5": self.alerts, "6": self.wandb, "run": self.run_pane,
        }  # fmt: skip
        """In the order in which Tab goes through them."""
        self.body = PaneLayout(self.panes)
        self.pane = self.runs
        self.chosen, self.zoomed = Chosen(), False
        self._has_begun = self._has_queue = self._has_charts = False
        self.shape = Shape(())

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.strip
        yield self.body
        yield self.find
        yield self.foot

    def show(self, state: State) -> None:
        self.header.show(state)
        self.strip.show(state)
        has = bool(state.jobs or watched(state)), any(run.spec.wandb for run in state.runs.values())
        if has != (self._has_queue, self._has_charts):
            self._has_queue, self._has_charts = has
            self.fit()
        for pane in self.panes.values():
            pane.show(state)
        if not self._has_begun and state.sources:
            self._has_begun = True
            if not state.runs and self.current == "1":
                self.action_pane("2")

    # ---- shape ----

    @property
    def current(self) -> str:
        """The number of the pane with the focus."""
        return self.chosen.current

    def on_mount(self) -> None:
        self.fit()
        self.runs.focus_body()

    def on_resize(self, event: events.Resize) -> None:
        self.fit()

    def fit(self) -> None:
        """Arrange the panes for this size, focus and zoom, if that changed."""
        width, height = self.app.size
        wanted = shape(width, height, self.chosen, zoomed=self.zoomed, queue=self._has_queue, charts=self._has_charts)
        tiny = is_tiny(width, height) and not self.zoomed
        sentence = what_is_hidden(wanted.hidden, width) if tiny else "zoomed  z goes back" if self.zoomed else ""
        self.foot.at(self.place, sentence)
        if wanted == self.shape:
            return
        self.shape = wanted
        with self.app.batch_update():
            self.body.stand(wanted.columns)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        for number, pane in self.panes.items():
            if number in NAMES and pane in event.widget.ancestors_with_self:
                self.chosen, self.pane = self.chosen.go_to(number), pane
                self.fit()

    @property
    def place(self) -> str:
        """The name of the focused pane in the key table."""
        if self.current == "4":
            return "log"
        if self.current == "7":
            # among the nodes of the queue other keys act
            subject = None if self.queue.selected is None else self.queue.subject_of(self.queue.selected)
            if self.queue.view == "nodes" if subject is None else subject[0] == "node":
                return "queue-nodes"
        return str(self.panes[self.current].id)

    def action_pane(self, number: str) -> None:
        """Go to a pane; again: zoom it."""
        if self.current == number:
            self.action_zoom()
            return
        self.chosen, self.pane = self.chosen.go_to(number), self.panes[number]
        self.fit()
        self.pane.focus_body()

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self.fit()

    def action_back(self) -> None:
        """Esc: close messages, then clear the filter or else end the zoom."""
        self.app.clear_notifications()
        if self.pane is not None and self.pane.filter:
            self.pane.set_filter("")
        elif self.zoomed:
            self.action_zoom()

    # ---- following the selection, and opening it ----

    def on_pane_selected(self, event: Pane.Selected) -> None:
        if event.pane is self.runs:
            self.log_pane.follow_run(event.key)
            self.run_pane.follow_run(event.key)
            self.wandb.follow_run(event.key)
        elif event.pane is self.queue:
            self.fit()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        if self.app.screen is not self:
            return  # a second Enter, or a plan, was faster
        if event.lines is self.runs.lines:
            self.watching.open(Link("run", event.key))
        elif event.lines is self.gpus.lines:
            self.watching.open(Link("node", event.key))
        elif event.lines is self.alerts.lines:
            self.open_alert()
        elif event.lines is self.queue.lines:
            subject = self.queue.subject_of(event.key)
            if subject is not None:
                self.watching.open(Link(*subject))

    def open_alert(self) -> None:
        """Open the alert under the cursor, or unmute the silence."""
        if self.alerts.silence() is not None:
            self.action_mute()
        elif self.alerts.selected is not None:
            self.watching.open(Link("alert", self.alerts.selected))

    def page(self) -> str | None:
        """The page of the selected run."""
        return self.run_pane.page

    def action_full_log(self) -> None:
        run = self.runs.selected
        if run is not None:
            self.app.push_screen(LogScreen(run))

    # ---- jump ----

    def action_jump(self) -> None:
        targets = [
            Target(f"pane {number}", self.panes[number].region.offset + Offset(2, 0))
            for number in NAMES
            if self.panes[number].display
        ]
        foot = self.foot.region.offset
        targets += [
            Target(f"key {key.keys.split(',')[0]}", foot + Offset(column - 1, 0)) for key, column in self.foot.placed()
        ]
        self.app.push_screen(Jump(targets), self.jump_to)

    def jump_to(self, name: str | None) -> None:
        """Go to the pane, or press the key, of a jump label."""
        kind, _, what = (name or "").partition(" ")
        if kind == "pane" and what != self.current:
            self.action_pane(what)
        elif kind == "key":
            self.app.simulate_key(what)
