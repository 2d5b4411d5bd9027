"""The alert strip under the header: the worst alerts. It takes no line while there are none."""

from __future__ import annotations

from trainmon.model import State
from tui.lines import Heading, Span


class Strip(Heading):
    """Hidden when all is well: a strip that always says something is not read."""

    def __init__(self) -> None:
        super().__init__(id="strip")
        self.display = False

    def show(self, state: State) -> None:
        spans = alerts(state)
        self.set_spans(spans)
        if self.display != bool(spans):
            self.display = bool(spans)


def alerts(state: State) -> tuple[Span, ...]:
    """The worst alerts, oldest first. A State has no alerts yet, so there are none to show."""
    return ()
