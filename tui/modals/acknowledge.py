"""The dialog that acknowledges an alert. The user is known; the reason is optional."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from tui.modals.once import Dialog

LASTING = "It keeps firing and stays visible; it is not repeated and not escalated."
PAST = "This event was sent once. It moves down to the alerts of the last day."


class Acknowledge(Dialog[str | None]):
    """Enter acknowledges with the typed reason; Esc closes."""

    def __init__(self, question: str, about: str, *, is_past: bool = False) -> None:
        super().__init__()
        self.question = question
        self.about = about
        self.is_past = is_past
        """Whether it is an event, not a lasting condition."""
        self.field = Input("", placeholder="why, or what you do about it (optional)", compact=True)
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
