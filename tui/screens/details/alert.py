"""One alert on the full screen: evidence, advice, notifications, and links to its run, node and job."""

from __future__ import annotations

from tui.panes.details import AlertPane
from tui.screens.navigation import LinkedScreen
from tui.widgets import Link


class AlertScreen(LinkedScreen):
    """`a` acknowledges it, `m` silences it; Esc goes back."""

    PLACE = "alert"

    def __init__(self, alert: str) -> None:
        super().__init__(Link("alert", alert), AlertPane(alert, id="alert-full"))
