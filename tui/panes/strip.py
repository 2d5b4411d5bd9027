"""The alert strip under the header: the worst alerts. It takes no line while there are none."""

from __future__ import annotations

from trainmon.model import State
from trainmon.text import clean
from tui.lines import Heading, Span
from tui.symbols import WARN


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
    """What must be known before anything is done: that nothing is written down. A State has no alerts yet."""
    if state.ledger is None:
        return ()
    return (Span(f"{WARN} ledger  ", "warn bold"), Span(clean(state.ledger)))
