"""A login asks: what, on which host, and a field for each answer. Esc declines; answers are kept nowhere."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from trainmon.lib import clean
from trainmon.model import Prompt
from tui.keys import bindings
from tui.modals.once import Dialog


class Ask(Dialog[tuple[str, ...] | None]):
    """One question of one host; its answers, or None when the person declines."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back")]

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

    def no_longer_asked(self) -> None:
        """Go; but while an answer is being typed stay, or the rest of it would be keys of the screen below."""
        if any(field.value for field in self.query(Input)):
            self.is_over = True
            self.query_one(".hint", Static).update(self.hint())
        else:
            self.dismiss(None)

    def hint(self) -> str:
        if self.is_over:
            return "This is no longer asked. Enter or Esc closes; nothing is answered"
        return "Enter answers  Esc declines" + (f"  {self.waiting} more to answer" if self.waiting else "")

    def on_mount(self) -> None:
        fields = self.query(Input)
        if fields:
            fields.first().focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the next field, and answers on the last."""
        fields = list(self.query(Input))
        place = fields.index(event.input)
        if place + 1 < len(fields):
            fields[place + 1].focus()
        else:
            self.dismiss(None if self.is_over else tuple(field.value for field in fields))

    def on_key(self, event: events.Key) -> None:
        """A question without a field is only read: Enter closes it, and goes no further."""
        if event.key == "enter" and not self.prompt.fields:
            event.stop()
            event.prevent_default()
            self.dismiss(())

    def action_back(self) -> None:
        self.dismiss(None)
