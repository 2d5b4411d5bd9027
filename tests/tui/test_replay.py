"""The time line of a replay, and the keys that move it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import dashboard, settled
from tests.tui.states.alerts import alarmed
from tests.tui.states.states import NOW, calm
from trainmon.lib import cell_width
from trainmon.model import Timeline
from tui.panes.header import time_line

LINE = Timeline(NOW, NOW - 600.0, NOW + 600.0, alerts=(NOW + 300.0,))
KEYS = {
    "p": "pause", "(": "back", "shift+left": "back", ")": "forward", "shift+right": "forward", "{": "slower",
    "}": "faster", ";": "alert",
}  # fmt: skip


async def test_a_replay_has_a_time_line_and_its_keys_move_it() -> None:
    backend = FakeBackend(replace(calm(), replay=LINE))
    async with running(dashboard(backend), size=(80, 24)) as pilot:
        line = (await settled(pilot)).splitlines()[1]
        assert line == " replay 14:13:20Z x1 ━━━━━●──▲─── 20m  p pause  ( ) 10s  { } speed  ; next alert"
        for key in KEYS:
            await pilot.press(key)
        assert backend.requests == [("play", order) for order in KEYS.values()]


async def test_without_a_replay_its_keys_say_where_there_is_one() -> None:
    backend = FakeBackend(calm())
    async with running(dashboard(backend), size=(80, 24), notifications=True) as pilot:
        await pilot.press("}")
        assert "not a replay; to start one: trainmon-tui replay FILE" in " ".join((await settled(pilot)).split())
    assert not backend.requests


@pytest.mark.parametrize("width", [79, 119, 199])
@pytest.mark.parametrize("at", [LINE.start, LINE.end])
def test_the_time_line_fills_its_line(width: int, at: float) -> None:
    text = time_line(replace(LINE, at=at), width)
    assert cell_width(text) == width
    bar = text.strip("replay 0123456789:Zx.").partition(" ")[0]
    assert (bar[0] == "●") == (at == LINE.start)
    assert (bar[-1] == "●") == (at == LINE.end)


def test_a_paused_replay_and_one_of_a_moment_have_a_time_line_too() -> None:
    assert " paused " in time_line(replace(LINE, is_playing=False), 119)
    assert "p play" in time_line(replace(LINE, is_playing=False), 119)
    assert "●" in time_line(Timeline(NOW, NOW, NOW), 40)


async def test_a_replay_says_neither_that_it_polls_nor_that_it_mutes() -> None:
    backend = FakeBackend(replace(alarmed(), replay=LINE))
    async with running(dashboard(backend), size=(120, 40), notifications=True) as pilot:
        await pilot.press("r")
        assert "a replay polls no sources" in await settled(pilot)
        for key in ("5", "m", "enter"):
            await pilot.press(key)
            shown = await settled(pilot)
        assert [name for name, *_ in backend.requests] == ["refresh", "mute"], "the player refuses it"
        assert "for 1h" not in shown


async def test_what_a_recording_of_somebody_else_holds_is_no_control_sequence() -> None:
    state, bad = calm(), "\x1b[2J\x07\u202e"
    nodes = {bad + name: replace(one, name=bad + name) for name, one in state.nodes.items()}
    async with running(dashboard(FakeBackend(replace(state, nodes=nodes, replay=LINE))), size=(160, 45)) as pilot:
        await pilot.press("2")
        text = await settled(pilot)
        assert "[2J" in text
        assert all(line.isprintable() for line in text.splitlines())
