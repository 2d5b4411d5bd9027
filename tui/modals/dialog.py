"""The base of all dialogs, and of all screens that close only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from tui.keys import bindings

Answer = TypeVar("Answer")


class Once(Screen[Answer]):
    """A screen that closes only once.

    When keys arrive together, the second may reach a screen that the first has closed. Textual would then close the
    screen below, and after the last screen end the program.
    """

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class Dialog(ModalScreen[Answer], Once[Answer]):
    """A dialog over the visible screen. Esc closes it. Textual's style sheets follow the first base only."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back")]

    def action_back(self) -> None:
        self.dismiss(None)


def ask(app: App[Any], dialog: Dialog[Answer | None], then: Callable[[Answer], None]) -> None:
    """Open a dialog, and call `then` with its answer. A dialog that is closed without one changes nothing."""
    app.push_screen(dialog, lambda answer: None if answer is None else then(answer))


def text(content: str, kind: str) -> Static:
    """A text of a dialog; `kind` is its class in trainmon.tcss: question, body, label or hint."""
    return Static(content, classes=kind, markup=False)


def text_field(value: str = "", **options: Any) -> Input:
    """An input line of a dialog."""
    field = Input(value, compact=True, **options)
    field.cursor_blink = False
    return field
