"""Repaints the screen under a toast when the toast goes.

Textual compares two layouts to find the regions that a widget has left. If a pane asks for its own width after the
toast has gone and before the next layout, the old layout no longer contains the toast. Textual then repaints nothing.
Our panes paint only changed cells, so the toast would stay on the terminal, with holes, until a resize.
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

POLL_EVERY: Seconds = 0.5

IDLE_POLLS = 4
"""After so many polls without a toast, polling stops until the next one. A toast is mounted only after it is sent."""

LINES = 6
"""The most lines shown of a channel's notification: the Alerts pane shows all."""

LEVELS: dict[str, SeverityLevel] = {"critical": "error", "warning": "warning"}


class ChannelNotification(Message):
    """A notification from the desktop channel, on another thread."""

    def __init__(self, title: str, text: str, severity: str, new: tuple[str, ...]) -> None:
        super().__init__()
        self.title = clean(title, 120)
        self.text = "\n".join(clean(line, 200) for line in text.split("\n")[:LINES])
        self.level: SeverityLevel = LEVELS.get(severity, "information")
        self.new = new
        """The alerts that it only reports as critical now."""


class Toasts:
    """Polls the regions of toasts while there are any, and repaints those that they have left."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self.timer: Timer | None = None
        """None: not polling."""
        self._idle = 0
        self._screen: Screen[Any] | None = None
        self._there: dict[Widget, Region] = {}
        self._left: list[Region] = []

    def watch(self) -> None:
        """Start polling: a toast was sent."""
        self._idle = 0
        if self.timer is None:
            self.timer = self._app.set_interval(POLL_EVERY, self.poll)

    def poll(self) -> None:
        """Repaint the regions that were left since the last poll; again at the next one, after the new layout."""
        if not self._app.screen_stack:  # the app is closing
            return
        screen = self._app.screen
        there = {toast: toast.region for toast in screen.query("Toast")}
        if screen is not self._screen:
            self._screen, self._there, self._left = screen, {}, []
        left = [region for toast, region in self._there.items() if region and there.get(toast) != region]
        if left or self._left:
            screen.refresh(*left, *self._left)
        self._there, self._left = there, left
        self._idle = 0 if there or left else self._idle + 1
        if self._idle >= IDLE_POLLS and self.timer is not None:
            self.timer.stop()
            self.timer = None
