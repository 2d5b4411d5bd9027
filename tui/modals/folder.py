"""The dialog that asks for the target folder of a download."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from tui.modals.once import Dialog


class Folder(Dialog[str | None]):
    """Enter returns the typed folder; Esc closes."""

    def __init__(self, question: str, folder: str) -> None:
        super().__init__()
        self.question = question
        self.field = Input(folder, compact=True, select_on_focus=False)
        self.field.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self.question, classes="question", markup=False)
            yield Static(
                "into this folder on this machine; it is created if it does not exist", classes="words", markup=False
            )
            yield self.field
            yield Static("Enter fetches  Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)
