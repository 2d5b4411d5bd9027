"""Following links: each opens its screen over the present one, and Esc goes back one."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen

from tui.panes import HeaderLine
from tui.screens.base import StateScreen
from tui.widgets import Footer, KeyedLines, Link, link_of


class LinkedScreen(StateScreen):
    """A screen about a run, its charts, a job, a node or an alert, whose lines lead to others."""

    def __init__(self, about: Link) -> None:
        super().__init__()
        self.about = about
        self.header = HeaderLine()
        self.foot = Footer()

    def on_mount(self) -> None:
        self.foot.at(self.PLACE)

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        """Open what the line names; the screen that one came from is gone back to, so that no circle piles up."""
        link = link_of(event.key)
        if link is None or self.app.screen is not self:
            return
        stack: list[Screen[Any]] = self.app.screen_stack
        below = stack[-2] if len(stack) > 1 else None
        if isinstance(below, LinkedScreen) and below.about == link:
            self.dismiss()
        else:
            self.watching.open(link)
