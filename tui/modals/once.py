"""Screens that end once."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, Screen

Answer = TypeVar("Answer")


class Once(Screen[Answer]):
    """A screen that ends once, however often it is asked to.

    Of keys that arrive together the second may reach a screen that the first has closed: Textual would then close the
    screen below, and of the last screen it would end the program.
    """

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class Dialog(ModalScreen[Answer], Once[Answer]):
    """A question over the screen, which shows through. Textual's style sheets follow the first base alone."""
