"""One alert on the full screen: evidence, what to do, who was told; its run, its node and its job to follow."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.model import State
from tui.panes.details import AlertPane
from tui.screens.navigation import LinkedScreen
from tui.widgets import Link


class AlertScreen(LinkedScreen):
    """`a` acknowledges it, `m` mutes it; Esc goes back."""

    PLACE = "alert"

    def __init__(self, alert: str) -> None:
        super().__init__(Link("alert", alert))
        self.alert_pane = AlertPane(alert, id="alert-full")
        self.pane = self.alert_pane

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.alert_pane
        yield self.foot

    def on_mount(self) -> None:
        super().on_mount()
        self.alert_pane.focus_body()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.alert_pane.show(state)
