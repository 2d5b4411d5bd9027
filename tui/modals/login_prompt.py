"""The dialog of an interactive login: its host, its question and a field per answer. Answers are never stored."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input

from trainmon.lib import clean
from trainmon.model import Prompt
from tui.modals.dialog import Dialog, text, text_field


class LoginPrompt(Dialog[tuple[str, ...] | None]):
    """One prompt of one host. Returns the answers, or None when the person declines."""

    def __init__(self, prompt: Prompt, waiting: int = 0) -> None:
        super().__init__()
        self.prompt = prompt
        self.is_over = False
        self.fields = [text_field(password=not echo) for _, echo in prompt.fields]
        more = f"  {waiting} more to answer" if waiting else ""
        self.hint = text(f"Enter answers  Esc declines{more}", "hint")

    def compose(self) -> ComposeResult:
        prompt = self.prompt
        lines: list[Widget] = [text(clean(f"{prompt.host} asks: {prompt.title}"), "question")]
        if prompt.instructions:
            lines.append(text("\n".join(clean(line) for line in prompt.instructions.splitlines()[:8]), "body"))
        for (label, _), field in zip(prompt.fields, self.fields, strict=True):
            lines += [text(clean(label), "label"), field]
        yield Vertical(*lines, self.hint, classes="dialog")

    def withdraw(self) -> None:
        """Close: the host no longer asks.

        Stay open while a person types: the other keys would go to the screen below.
        """
        if any(field.value for field in self.fields):
            self.is_over = True
            self.hint.update("The host no longer asks. Enter or Esc closes; nothing is sent")
        else:
            self.dismiss(None)

    def on_mount(self) -> None:
        for field in self.fields[:1]:
            field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the next field; on the last one it sends the answers."""
        if event.input is not self.fields[-1]:
            self.fields[self.fields.index(event.input) + 1].focus()
        else:
            self.dismiss(None if self.is_over else tuple(field.value for field in self.fields))

    def on_key(self, event: events.Key) -> None:
        """Enter closes a prompt without fields, and reaches no other widget."""
        if event.key == "enter" and not self.prompt.fields:
            event.stop()
            event.prevent_default()
            self.dismiss(())
