"""The alert strip under the header: the worst alerts. It is hidden while there are none."""

from __future__ import annotations

from textual import events

from trainmon.lib import cell_width, clean, shorten
from trainmon.model import Alert, State
from tui.style import WARN, Span, calm_age
from tui.views.alerts import SIGNS, most_urgent
from tui.widgets import GUTTER, Heading

AT_MOST = 3
AGES_EVERY = 10.0
"""Summaries change every second; the strip shows them anew every ten."""

HINT, HINT_FROM = "  a ack", 76
"""The key that works wherever the cursor is, while the strip shows an alert."""

LEAST = 28
"""The least cells of an alert. A second alert is shown if both have them."""


class Strip(Heading):
    """Hidden without alerts: nobody reads a strip that always shows something."""

    def __init__(self) -> None:
        super().__init__(id="strip")
        self.display = False
        self._state: State | None = None
        self._why: tuple[object, ...] = ()

    def show(self, state: State) -> None:
        self._state = state
        width = self.app.size.width
        worst = tuple((one.id, one.severity) for one in most_urgent(state)[:AT_MOST])
        why = (worst, len(state.alerts), state.ledger, state.at // AGES_EVERY, width)
        if why == self._why:
            return
        self._why = why
        spans = alerts(state, width - GUTTER)
        self.set_spans(spans)
        if self.display != bool(spans):
            self.display = bool(spans)

    def on_resize(self, event: events.Resize) -> None:
        if self._state is not None:
            self.show(self._state)


def alerts(state: State, width: int = 240) -> tuple[Span, ...]:
    """A ledger problem, then the two or three worst open alerts, the oldest first, and the number of the others."""
    spans: list[Span] = []
    if state.ledger is not None:
        words = clean(state.ledger)
        spans = [Span(f"{WARN} ledger  ", "warn bold"), Span(shorten(words, max(12, width // 2)))]
    found = most_urgent(state)
    if not found:
        return tuple(spans)
    spans += [Span("  ")] * bool(spans)
    hint = HINT if width >= HINT_FROM else ""
    room = width - sum(cell_width(span.text) for span in spans) - cell_width(hint)
    shown = found[: max(1, min(AT_MOST, room // (LEAST + 2)))]
    more = f"  +{len(found) - len(shown)}" if len(found) > len(shown) else ""
    room -= cell_width(more)
    for place, alert in enumerate(shown):
        left = len(shown) - place
        said = entry(alert, state, (room - 2 * (left - 1)) // left)
        spans += ([Span("  ")] if place else []) + said
        room -= sum(cell_width(span.text) for span in said) + 2 * bool(left - 1)
    return (*spans, *([Span(more + hint, "dim")] if more or hint else []))


def entry(alert: Alert, state: State, room: int) -> list[Span]:
    """`▲ CRIT gpu-003/5 is at 94 °C 6m`. The age is never cut."""
    symbol, word, style = SIGNS[alert.severity]
    head, age = f"{symbol} {word} ", f" {calm_age(max(0.0, state.at - alert.since))}"
    summary = shorten(clean(alert.summary), max(1, room - cell_width(head) - cell_width(age)))
    return [Span(head, f"{style} bold"), Span(summary), Span(age, "dim")]
