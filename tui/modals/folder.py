"""The question before something is fetched: into which folder of this machine."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from tui.keys import bindings
from tui.modals.once import Dialog


class Folder(Dialog[str | None]):
    """Enter takes what is written there, Esc nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back")]

    def __init__(self, question: str, folder: str) -> None:
        super().__init__()
        self.question = question
        self.field = Input(folder, compact=True, select_on_focus=False)
        self.field.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self.question, classes="question", markup=False)
            yield Static(
                "into this folder of this machine; it is made when it is not there", classes="words", markup=False
            )
            yield self.field
            yield Static("Enter fetches  Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_back(self) -> None:
        self.dismiss(None)
