"""The log of one run on the full screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from trainmon.model import State
from tui.keys import bindings
from tui.panes import HeaderLine, LogPane
from tui.screens.base import PaneScreen


class LogScreen(PaneScreen):
    """The same pane as on the main screen, with all the room; Esc goes back."""

    PLACE = "log-screen"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("log-screen")]

    def __init__(self, run: str) -> None:
        super().__init__()
        self.header = HeaderLine()
        self.log_pane = LogPane(id="log-full")
        self.log_pane.run = run
        self.pane = self.log_pane

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.log_pane
        yield self.find
        yield self.foot

    def on_mount(self) -> None:
        self.foot.at(self.PLACE)
        self.log_pane.view.focus()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.log_pane.show(state)

    def action_back(self) -> None:
        if self.log_pane.filter:
            self.log_pane.set_filter("")
        else:
            self.dismiss()
