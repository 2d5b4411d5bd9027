"""The dialog of an interactive login: its host, its question and a field per answer. Answers are never stored."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from trainmon.lib import clean
from trainmon.model import Prompt
from tui.modals.once import Dialog


class LoginPrompt(Dialog[tuple[str, ...] | None]):
    """One prompt of one host. Returns the answers, or None when the person declines."""

    def __init__(self, prompt: Prompt, waiting: int = 0) -> None:
        super().__init__()
        self.prompt = prompt
        self.waiting = waiting
        self.is_over = False

    def compose(self) -> ComposeResult:
        prompt = self.prompt
        with Vertical(classes="dialog"):
            yield Static(clean(f"{prompt.host} asks: {prompt.title}"), classes="question", markup=False)
            if prompt.instructions:
                text = "\n".join(clean(line) for line in prompt.instructions.splitlines()[:8])
                yield Static(text, classes="words", markup=False)
            for text, echo in prompt.fields:
                yield Static(clean(text), classes="label", markup=False)
                field = Input(password=not echo, compact=True)
                field.cursor_blink = False
                yield field
            yield Static(self.hint(), classes="hint", markup=False)

    def withdraw(self) -> None:
        """Close: the host no longer asks.

        Stay open while a person types: the other keys would go to the screen below.
        """
        if any(field.value for field in self.query(Input)):
            self.is_over = True
            self.query_one(".hint", Static).update(self.hint())
        else:
            self.dismiss(None)

    def hint(self) -> str:
        if self.is_over:
            return "The host no longer asks. Enter or Esc closes; nothing is sent"
        return "Enter answers  Esc declines" + (f"  {self.waiting} more to answer" if self.waiting else "")

    def on_mount(self) -> None:
        fields = self.query(Input)
        if fields:
            fields.first().focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the next field; on the last one it sends the answers."""
        fields = list(self.query(Input))
        place = fields.index(event.input)
        if place + 1 < len(fields):
            fields[place + 1].focus()
        else:
            self.dismiss(None if self.is_over else tuple(field.value for field in fields))

    def on_key(self, event: events.Key) -> None:
        """Enter closes a prompt without fields, and reaches no other widget."""
        if event.key == "enter" and not self.prompt.fields:
            event.stop()
            event.prevent_default()
            self.dismiss(())
