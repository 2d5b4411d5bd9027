"""Following links: each opens its screen over the present one, and Esc goes back one."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen

from tui.backend import Backend
from tui.footer import Foot
from tui.lines import KeyedLines
from tui.links import Link, link_of
from tui.panes.header import HeaderLine
from tui.screens.base import Shown


class LinkedScreen(Shown):
    """A screen about a run, its charts, a job, a node or an alert, whose lines lead to others."""

    def __init__(self, about: Link) -> None:
        super().__init__()
        self.about = about
        self.header = HeaderLine()
        self.foot = Foot()

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
            self.app.push_screen(screen_for(link, self.watching.backend))


def screen_for(link: Link, backend: Backend) -> Shown:
    """A screen about what a link names. These screens lead to each other, so they are imported when one is wanted."""
    from tui.screens.alert import AlertScreen
    from tui.screens.job import JobScreen
    from tui.screens.log import LogScreen
    from tui.screens.node import NodeScreen
    from tui.screens.run import RunScreen
    from tui.screens.wandb import WandbScreen

    if link.kind == "wandb":
        return WandbScreen(link.name, backend)
    kinds = {"run": RunScreen, "job": JobScreen, "node": NodeScreen, "log": LogScreen, "alert": AlertScreen}
    return kinds[link.kind](link.name)
