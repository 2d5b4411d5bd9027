"""The dialog that mutes alerts: what, for how long, why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from trainmon.lib import Seconds, shorten
from tui.modals.once import Dialog
from tui.style import Span
from tui.views.alerts import USUAL, Choice, parse_duration
from tui.widgets import KeyedLines, Row


class Muting(NamedTuple):
    """The person's decision."""

    choice: Choice
    seconds: Seconds
    why: str


class Mute(Dialog[Muting | None]):
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
        self.span = Input(USUAL, compact=True, select_on_focus=True)
        self.why = Input("", placeholder="why (optional)", compact=True)
        for field in (self.span, self.why):
            field.cursor_blink = False
        self.wrong = Static("", classes="hint", id="mute-wrong", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self.question, classes="question", markup=False)
            yield self.lines
            yield Static("for how long (30m 1h 2d 1w)", classes="label", markup=False)
            yield self.span
            yield Static("why", classes="label", markup=False)
            yield self.why
            yield self.wrong
            yield Static("It stays visible.  Tab next  Enter mutes  Esc closes", classes="hint",
                         markup=False)  # fmt: skip

    def on_mount(self) -> None:
        self.lines.styles.height = len(self.choices)
        self.wrong.display = False
        self.lines.focus()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        width = self.lines.row_width
        self.lines.set_rows([Row(one.key, (Span(shorten(f" {one.text}", width)),)) for one in self.choices])

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        event.stop()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        event.stop()
        self._decide()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._decide()

    def _decide(self) -> None:
        """Close with the decision, or show why the duration is invalid."""
        seconds = parse_duration(self.span.value)
        choice = next((one for one in self.choices if one.key == self.lines.cursor_key), self.choices[0])
        if isinstance(seconds, str):
            self.wrong.update(seconds)
            self.wrong.display = True
            self.span.focus()
        else:
            self.dismiss(Muting(choice, seconds, self.why.value.strip()))
