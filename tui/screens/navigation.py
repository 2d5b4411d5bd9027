"""Screens about one thing, whose lines lead to others: each opens its screen on top, and Esc goes back one."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.model import State
from tui.panes import HeaderLine, Pane
from tui.screens.base import StateScreen
from tui.widgets import Footer, KeyedLines, Link, link_of


class LinkedScreen(StateScreen):
    """A header, one pane about a run, its charts, a job, a node or an alert, and the footer."""

    pane: Pane

    def __init__(self, about: Link, pane: Pane) -> None:
        super().__init__()
        self.about = about
        self.header = HeaderLine()
        self.pane = pane
        self.foot = Footer()

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.pane
        yield self.foot

    def on_mount(self) -> None:
        self.foot.at(self.PLACE)
        self.pane.focus_body()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.pane.show(state)

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        """Open what the line names. A link to the screen below closes this one, so that screens do not pile up."""
        link = link_of(event.key)
        if link is None or self.app.screen is not self:
            return
        stack = self.app.screen_stack
        below = stack[-2] if len(stack) > 1 else None
        if isinstance(below, LinkedScreen) and below.about == link:
            self.dismiss()
        else:
            self.watching.open(link)
