"""The question before an alert is acknowledged: by whom is known, why may be said."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from tui.keys import bindings
from tui.modals.once import Dialog

LASTING = "It goes on firing and is shown; it is not repeated, and nobody else is called."
PAST = "It has happened, and is told once; from now on it stands below, among those of the last day."


class Acknowledge(Dialog[str | None]):
    """Enter acknowledges, with what is written there; Esc does not."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back")]

    def __init__(self, question: str, about: str, *, is_past: bool = False) -> None:
        super().__init__()
        self.question = question
        self.about = about
        self.is_past = is_past
        """Whether it is about what happened, and does not last."""
        self.field = Input("", placeholder="why, or what you do about it; may stay empty", compact=True)
        self.field.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self.question, classes="question", markup=False)
            yield Static(self.about, classes="words", markup=False)
            yield Static(PAST if self.is_past else LASTING, classes="words", markup=False)
            yield Static("", classes="label", markup=False)
            yield self.field
            yield Static("Enter acknowledges  Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_back(self) -> None:
        self.dismiss(None)
