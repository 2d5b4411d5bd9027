"""The buttons of a dialog: labels in brackets, with the cursor symbol beside the focused one."""

from __future__ import annotations

from dataclasses import dataclass
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
    """A button. It shows its focus without colour."""

    DEFAULT_CSS = """
    TriggerButton { height: 1; width: auto; margin-right: 1; }
    TriggerButton:focus { text-style: bold reverse; }
    TriggerButton.danger { color: $text-error; text-style: bold; }
    TriggerButton.danger:focus { text-style: bold reverse; }
    TriggerButton:disabled { text-style: dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("button")]
    ALLOW_SELECT = False

    @dataclass
    class Pressed(Message):
        """Enter on the button, or a click."""

        button: TriggerButton

    def __init__(self, label: str, *, id: str, disabled: bool = False) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, disabled=disabled)
        self.label = label

    def set_label(self, label: str) -> None:
        if label != self.label:
            self.label = label
            self.refresh(layout=True)

    def get_content_width(self, container: object, viewport: object) -> int:
        return cell_width(self.label) + 5

    def render(self) -> RenderResult:
        return Content(f"{CURSOR if self.has_focus else ' '}[ {self.label} ]")

    def action_press(self) -> None:
        self.post_message(self.Pressed(self))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_press()
