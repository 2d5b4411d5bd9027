"""The dashboard on a State of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard
from trainmon.model import LastSeen, State
from tui.app import Dashboard


async def publish(app: Dashboard, pilot: Pilot[None], backend: FakeBackend, state: State) -> None:
    """A State comes two seconds later, and is on the screen."""
    app.clock.at += 2.0  # type: ignore[attr-defined]
    backend.publish(state)
    await at_rest(pilot)


@asynccontextmanager
async def showing(
    state: State,
    size: tuple[int, int] = (120, 40),
    backend: FakeBackend | None = None,
    seen: LastSeen | None = None,
) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = backend or FakeBackend(state)
    app = dashboard(backend, seen)
    async with running(app, size=size, notifications=True) as pilot:
        await at_rest(pilot)
        yield app, pilot, backend
