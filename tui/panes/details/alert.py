"""All details of one alert, with links."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from trainmon.lib import clean
from trainmon.model import State
from tui.keys import bindings
from tui.panes.details.linked import LinkedPane
from tui.views.alerts import alert_lines


class AlertPane(LinkedPane):
    """One alert by its id, whatever becomes of it."""

    NAME = "Alert"
    LISTS_ALERTS = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("alerts")]

    def __init__(self, alert: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.alert = alert

    def alerts(self) -> tuple[str, ...]:
        return (self.alert,)

    def copy_text(self) -> str | None:
        """Its id, as `trainmon-tui ack` takes it."""
        return self.alert

    def draw(self, state: State, width: int) -> None:
        alert = state.alerts.get(self.alert)
        self.caption(clean(self.alert if alert is None else f"{alert.id}  {alert.rule}  {alert.subject}"))
        self.tell(alert_lines(self.alert, state, width))
