"""A dialog that asks for one line: the reason of an acknowledgement, the target folder of a download."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from tui.modals.dialog import Dialog, text, text_field


class TextPrompt(Dialog[str | None]):
    """Enter returns the typed line; Esc closes."""

    def __init__(self, question: str, *lines: str, verb: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self.texts = text(question, "question"), *(text(line, "body") for line in lines)
        self.field = text_field(value, placeholder=placeholder, select_on_focus=False)
        self.hint = text(f"Enter {verb}  Esc closes", "hint")

    def compose(self) -> ComposeResult:
        yield Vertical(*self.texts, text("", "blank"), self.field, self.hint, classes="dialog")

    def on_mount(self) -> None:
        self.field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())
