"""The input line of a filter or a search. It applies while you type; Enter keeps it, Esc clears it."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import Input


class Find(Input):
    """A one-line input above the footer."""

    @dataclass
    class Typed(Message):
        """The text so far."""

        text: str

    class Closed(Message):
        """The input closed: kept by Enter, or cleared by Esc."""

    def __init__(self) -> None:
        super().__init__(id="find", compact=True)
        self.cursor_blink = False
        self.display = False

    def open(self, what: str, text: str) -> None:
        """Open the input with this text."""
        self.placeholder = what
        self.display = True
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.screen.set_focus(self)

    def close(self) -> None:
        if self.display:
            self.display = False
            self.post_message(self.Closed())

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.post_message(self.Typed(""))
            self.close()
