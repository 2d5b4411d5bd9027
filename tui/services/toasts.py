"""What lay under a message is painted when the message goes.

Textual finds the places that a widget has left by comparing two layouts. When a pane asks for its own width after the
widget has gone, and before the screen is laid out again, the layout that is compared with has forgotten it. Nothing is
stale then, and as our panes paint changed cells alone, the message stays on the terminal, with holes, until a resize.
"""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.geometry import Region
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from trainmon.lib import Seconds, clean

LOOK_EVERY: Seconds = 0.5

IDLE_LOOKS = 4
"""Looks without a message after which no more are taken, until the next message: one is mounted after it is sent."""


LINES = 6
"""What is shown of a channel's message: the pane of alerts has it all."""

LEVELS: dict[str, SeverityLevel] = {"critical": "error", "warning": "warning"}


class Called(Message):
    """A channel has something to show, on another thread."""

    seconds = 20.0

    def __init__(self, title: str, words: str, severity: str, new: tuple[str, ...]) -> None:
        super().__init__()
        self.title = clean(title, 120)
        self.words = "\n".join(clean(line, 200) for line in words.split("\n")[:LINES])
        self.level: SeverityLevel = LEVELS.get(severity, "information")
        self.rings = severity == "critical"
        self.new = new
        """The alerts of which it tells no more than that they are critical now."""


class Toasts:
    """Looks where messages are while there are any, and has the places painted that they have left."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._timer: Timer | None = None
        self._idle = 0
        self._screen: Screen[Any] | None = None
        self._there: dict[Widget, Region] = {}
        self._left: list[Region] = []

    @property
    def is_looking(self) -> bool:
        return self._timer is not None

    def watch(self) -> None:
        """A message was sent."""
        self._idle = 0
        if self._timer is None:
            self._timer = self._app.set_interval(LOOK_EVERY, self.look)

    def look(self) -> None:
        """Paint the places that were left since the last look; once more at the next, when all is laid out anew."""
        screen = self._app.screen
        there = {toast: toast.region for toast in screen.query("Toast")}
        if screen is not self._screen:
            self._screen, self._there, self._left = screen, {}, []
        left = [region for toast, region in self._there.items() if region and there.get(toast) != region]
        if left or self._left:
            screen.refresh(*left, *self._left)
        self._there, self._left = there, left
        self._idle = 0 if there or left else self._idle + 1
        if self._idle >= IDLE_LOOKS and self._timer is not None:
            self._timer.stop()
            self._timer = None
