"""One run on the full screen: everything known of it."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.model import State
from tui.footer import Foot
from tui.panes.header import HeaderLine
from tui.panes.run import RunPane
from tui.screens.base import Shown


class RunScreen(Shown):
    """The detail pane with all the room; Esc goes back."""

    PLACE = "run"

    def __init__(self, run: str) -> None:
        super().__init__()
        self.header = HeaderLine()
        self.run_pane = RunPane(id="run-full")
        self.run_pane.run = run
        self.pane = self.run_pane
        self.foot = Foot()

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.run_pane
        yield self.foot

    def on_mount(self) -> None:
        self.foot.at(self.PLACE)
        self.run_pane.focus_body()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.run_pane.show(state)
