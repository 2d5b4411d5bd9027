"""Messages leave nothing behind on the terminal itself, which is not what the screen's own map says is there."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pyte
from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from tests.tui.backend import FakeBackend
from tests.tui.screen_text import StillClock, at_rest
from tests.tui.states.states import calm
from tui.app import Dashboard

SIZE = 120, 40
MINUTES = 600.0
"""A message goes when a test says so, on however busy a machine."""


class Mirrored(Dashboard):
    """What it paints is also painted on a terminal that can be read."""

    CSS_PATH = str(Path(inspect.getfile(Dashboard)).parent / "trainmon.tcss")

    def __init__(self) -> None:
        super().__init__(FakeBackend(calm()), clock=StillClock())
        self.terminal = pyte.Screen(*SIZE)
        self._stream = pyte.Stream(self.terminal)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, CompositorUpdate) and not self._batch_count:
            self._stream.feed(renderable.render_segments(self.console))
        super()._display(screen, renderable)

    @property
    def lines_of_messages(self) -> int:
        """Lines of the terminal on which a message is."""
        return sum("message number" in line for line in self.terminal.display)


async def seen(app: Mirrored, pilot: Pilot[None], lines: int) -> bool:
    """Whether the terminal comes to show a message on so many lines."""
    for _ in range(600):
        if app.lines_of_messages == lines:
            return True
        await pilot.pause(0.05)
    return False


async def cleared(app: Mirrored) -> None:
    """The message has left the tree; the screen is not laid out anew yet."""
    message = app.screen.query("Toast").first(Widget)
    app.clear_notifications()
    while message.is_attached:
        await asyncio.sleep(0)


async def test_a_message_that_goes_while_a_pane_asks_where_it_is_leaves_no_cell_behind() -> None:
    app = Mirrored()
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await at_rest(pilot)
        app.notify("message number 1", title="asked", timeout=MINUTES)
        assert await seen(app, pilot, 1)
        app.toasts.poll()

        app.main.run_pane.lines.refresh()  # it is not in sight: the screen's map is made anew for the next who asks
        await pilot.pause(0.1)
        await cleared(app)
        assert app.main.runs.width > 0

        assert await seen(app, pilot, 0)
