"""A list to choose one thing from."""

from __future__ import annotations

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import settled
from tui.modals.dialog import Pick


async def test_what_holds_now_is_in_sight_in_a_long_list() -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=(80, 24)) as pilot:
        app.push_screen(Pick("Theme", [(str(number), f"name {number}") for number in range(30)], "29"))

        assert "› name 29  (current)" in await settled(pilot)
