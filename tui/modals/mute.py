"""The dialog that mutes alerts: what, for how long, why."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from trainmon.lib import Seconds, shorten
from tui.modals.dialog import Dialog, text, text_field
from tui.style import Span
from tui.views.alerts import USUAL, Choice, parse_duration
from tui.widgets import KeyedLines, Row


class Mute(Dialog[tuple[Choice, Seconds, str] | None]):
    """Up and down choose what to mute, Tab goes to duration and reason, Enter mutes, Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,down", "app.focus_next", show=False),
        Binding("shift+tab,up", "app.focus_previous", show=False),
    ]

    def __init__(self, question: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.question = question
        self.choices = tuple(choices)
        self.lines = KeyedLines()
        self.span = text_field(USUAL)
        self.why = text_field(placeholder="optional")
        self.error = text("", "hint")

    def compose(self) -> ComposeResult:
        yield Vertical(
            text(self.question, "question"),
            self.lines,
            text("for how long (such as 30m, 1h, 2d, 1w)", "label"),
            self.span,
            text("why", "label"),
            self.why,
            self.error,
            text("Alerts stay visible.  Tab next  Enter mutes  Esc closes", "hint"),
            classes="dialog",
        )

    def on_mount(self) -> None:
        self.lines.styles.height = len(self.choices)
        self.error.display = False
        self.lines.focus()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        width = self.lines.row_width
        self.lines.set_rows([Row(one.key, (Span(shorten(f" {one.text}", width)),)) for one in self.choices])
        self.call_after_refresh(self.note_drawn, monotonic())

    def note_drawn(self, at: float = inf) -> None:
        if self.lines.rows:
            super().note_drawn(at)

    @on(KeyedLines.Chosen)
    @on(Input.Submitted)
    def mute(self) -> None:
        """Close with the decision, or show why the duration is invalid."""
        seconds = parse_duration(self.span.value)
        choice = next((one for one in self.choices if one.key == self.lines.cursor_key), self.choices[0])
        if isinstance(seconds, str):
            self.error.update(seconds)
            self.error.display = True
            self.span.focus()
        else:
            self.dismiss((choice, seconds, self.why.value.strip()))
