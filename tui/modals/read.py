"""A dialog with a scrollable text: the usual keys scroll it, whichever button or field has the focus."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import BindingType

from tui.keys import bindings
from tui.modals.once import Dialog
from tui.widgets import TextView

Answer = TypeVar("Answer")


class TextScreen(Dialog[Answer]):
    """A dialog whose movement keys scroll its body."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("moves")]

    def __init__(self) -> None:
        super().__init__()
        self.body = TextView()

    def action_cursor_down(self) -> None:
        self.body.action_cursor_down()

    def action_cursor_up(self) -> None:
        self.body.action_cursor_up()

    def action_page_down(self) -> None:
        self.body.action_page_down()

    def action_page_up(self) -> None:
        self.body.action_page_up()

    def action_first(self) -> None:
        self.body.action_first()

    def action_last(self) -> None:
        self.body.action_last()
