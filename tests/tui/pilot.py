"""An app that runs without a terminal, and costs a third less: Textual's own `run_test`, without what no test sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from tui.screens.details import LinkedScreen

TURNS = 100_000
"""A loop that never rests is an app that posts messages to itself for ever."""

_parsed: dict[tuple[object, ...], list[RuleSet]] = {}
"""What each style sheet means, by its text and the theme's variables: hundreds of apps read the same."""


class StillPilot(Pilot[Any]):
    """Waits until nothing is left to do, however slow the machine is.

    Textual's own sends a message to each widget and waits until all were handled: half of the work of many a test.
    """

    async def _wait_for_screen(self, timeout: float = 30.0) -> bool:
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if not ready:
                return True
        return False


@asynccontextmanager
async def running(
    app: App[Any], size: tuple[int, int] = (80, 24), notifications: bool = False
) -> AsyncIterator[StillPilot]:
    with _unseen():
        async with app.run_test(size=size, notifications=notifications):
            yield StillPilot(app)


def thing_shown(app: App[Any]) -> str:
    """The kind of thing that the screen is about: an alert, a disk."""
    assert isinstance(app.screen, LinkedScreen)
    return app.screen.about.kind


@contextmanager
def _unseen() -> Iterator[None]:
    """Draw no frame that a headless app throws away (`text_of` draws the screen); parse no style sheet twice."""
    render, parse = Compositor.render_update, Stylesheet._parse_rules

    def render_update(self: Compositor, full: bool = False, screen_stack: Any = None, simplify: bool = False) -> Any:
        if full:
            return render(self, full, screen_stack, simplify)
        visible_screen_stack.set(screen_stack or [])
        self._dirty_regions.clear()
        return None

    def parse_rules(self: Stylesheet, *source: Any, **options: Any) -> list[RuleSet]:
        key = (*source, *options.values(), *self._variables.items())
        if key not in _parsed:
            _parsed[key] = parse(self, *source, **options)
        return _parsed[key]

    Compositor.render_update, Stylesheet._parse_rules = render_update, parse_rules  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Compositor.render_update, Stylesheet._parse_rules = render, parse  # type: ignore[method-assign]
