"""The buttons of a dialog: words in brackets, and the cursor's sign beside the one that Enter presses."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import RenderResult
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from trainmon.lib import cell_width
from tui.keys import bindings
from tui.style import CURSOR


class TriggerButton(Widget, can_focus=True):
    """One button. It shows without any colour whether it has the focus."""

    DEFAULT_CSS = """
    TriggerButton { height: 1; width: auto; margin-right: 1; }
    TriggerButton:focus { text-style: bold reverse; }
    TriggerButton:disabled { text-style: dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("door")]
    ALLOW_SELECT = False

    class Pressed(Message):
        """Enter on it, or a click."""

        def __init__(self, door: TriggerButton) -> None:
            super().__init__()
            self.door = door

    def __init__(self, words: str, *, id: str, disabled: bool = False) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, disabled=disabled)
        self.words = words

    def say(self, words: str) -> None:
        if words != self.words:
            self.words = words
            self.refresh(layout=True)

    def get_content_width(self, container: object, viewport: object) -> int:
        return cell_width(self.words) + 5

    def render(self) -> RenderResult:
        return Content(f"{CURSOR if self.has_focus else ' '}[ {self.words} ]")

    def action_press(self) -> None:
        self.post_message(self.Pressed(self))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_press()
