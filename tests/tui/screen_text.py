"""A running dashboard's screen as plain text, line by line."""

from __future__ import annotations

from typing import Any

from textual import events
from textual._context import visible_screen_stack
from textual.app import App
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.states.states import NOW
from trainmon.model import LastSeen
from tui.app import Dashboard

SAME = 4
"""Pauses of 20 ms in which nothing is drawn."""


class StillClock:
    """A clock that a test moves."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def dashboard(backend: FakeBackend, seen: LastSeen | None = None) -> Dashboard:
    return Dashboard(backend, clock=StillClock(), seen=seen)


def text_of(app: App[Any]) -> str:
    """What the top screen draws, without what shows through a modal one from below and without trailing blanks."""
    screen = app.screen
    visible_screen_stack.set([])
    screen._layout_cache.clear()
    screen._set_dirty()
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in screen._compositor.render_strips()]
    return "\n".join(lines) + "\n"


async def settled(pilot: Pilot[None]) -> str:
    """The screen's text once nothing is drawn any more."""
    await at_rest(pilot)
    return text_of(pilot.app)


async def at_rest(pilot: Pilot[None]) -> None:
    """Wait until nothing is drawn any more: a screen that opens does so a moment after its key."""
    app, screen, still = pilot.app, pilot.app.screen, 0

    def drawn() -> None:
        nonlocal still
        still = -1
        type(app).post_display_hook(app)

    app.post_display_hook = drawn  # type: ignore[method-assign]
    for _ in range(100):
        await pilot.pause(0.02)
        screen, still = app.screen, still + 1 if app.screen is screen else 0
        if still == SAME:
            break


def arrive(app: App[Any], *keys: str) -> None:
    """Keys of one packet, as over a slow line: none waits for what the one before it did."""
    characters = {"enter": "\r", "colon": ":", "escape": "\x1b"}
    for key in keys:
        app.post_message(events.Key(key, characters.get(key, key if len(key) == 1 else None)))
