"""A dialog with a short list: the sort order of a pane, a host to log in to."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical

from trainmon.lib import clean
from tui.modals.dialog import Dialog, text
from tui.style import Span
from tui.widgets import KeyedLines, Row


class Pick(Dialog[str | None]):
    """Enter chooses, Esc closes. `now` is the current choice."""

    def __init__(self, question: str, choices: Sequence[tuple[str, str]], now: str | None = None) -> None:
        super().__init__()
        self.question = question
        self.choices = tuple(choices)
        self.now = now
        self.lines = KeyedLines()

    def compose(self) -> ComposeResult:
        hint = text("Enter chooses  Esc closes", "hint")
        yield Vertical(text(self.question, "question"), self.lines, hint, classes="dialog")

    def on_mount(self) -> None:
        self.lines.styles.height = min(len(self.choices), 12)
        self.lines.set_rows(
            [
                Row(key, (Span(f" {clean(words)}"), Span("  (current)" if key == self.now else "", "dim")))
                for key, words in self.choices
            ]
        )
        self.lines.focus()
        if self.now is not None:
            self.call_after_refresh(self.lines.move_to, self.now)  # once there is a height to scroll in

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        self.dismiss(event.key)
