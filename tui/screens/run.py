"""One run on the full screen: everything known of it, and the way on to its jobs, its nodes and its log."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.model import State
from tui.links import Link
from tui.panes.run import RunPane
from tui.screens.follow import LinkedScreen


class RunScreen(LinkedScreen):
    """The detail pane with all the room; Esc goes back."""

    PLACE = "run"

    def __init__(self, run: str) -> None:
        super().__init__(Link("run", run))
        self.run_pane = RunPane(id="run-full", follow=True)
        self.run_pane.run = run
        self.pane = self.run_pane

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.run_pane
        yield self.foot

    def on_mount(self) -> None:
        super().on_mount()
        self.run_pane.focus_body()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.run_pane.show(state)
