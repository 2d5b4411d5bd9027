"""A running dashboard's screen as plain text, line by line."""

from __future__ import annotations

from tests.tui.backend import FakeBackend
from tests.tui.states import NOW
from tui.app import Dashboard


class StillClock:
    """A clock that a test moves."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def dashboard(backend: FakeBackend) -> Dashboard:
    return Dashboard(backend, clock=StillClock())


def text_of(app: Dashboard) -> str:
    """What is on the screen, without trailing blanks."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    text = ["".join(segment.text for segment in strip).rstrip() for strip in lines]
    return "\n".join(text[:height]) + "\n"
