"""`a` and `m` on a running dashboard, and what they ask of the backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

import tui.app
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, settled
from tests.tui.states.alerts import alarmed, alert, with_alerts
from tests.tui.states.states import NOW
from trainmon.model import Silence, State
from tui.app import Dashboard


class Ringing(Dashboard):
    """Counts its bell."""

    CSS_PATH = str(Path(tui.app.__file__).with_name("trainmon.tcss"))
    rung = 0

    def bell(self) -> None:
        self.rung += 1


@asynccontextmanager
async def showing(state: State) -> AsyncIterator[tuple[FakeBackend, Pilot[None]]]:
    backend = FakeBackend(state)
    app = dashboard(backend)
    async with running(app, size=(100, 30), notifications=True) as pilot:
        await at_rest(pilot)
        yield backend, pilot


async def press(pilot: Pilot[None], *keys: str) -> str:
    for key in keys:
        await pilot.press(key)
        await at_rest(pilot)
    return await settled(pilot)


async def test_a_acknowledges_the_alert_under_the_cursor_with_a_why() -> None:
    async with showing(alarmed()) as (backend, pilot):
        await press(pilot, "5", "j", "a", *"on it", "enter")

        assert backend.requests[-1] == ("acknowledge", "aaaa0002", "on it")


async def test_a_works_on_marked_alerts_and_takes_the_marks_away() -> None:
    async with showing(alarmed()) as (backend, pilot):
        await press(pilot, "5", "space", "space", "a", "enter")

        assert backend.requests[-2:] == [("acknowledge", "aaaa0001", ""), ("acknowledge", "aaaa0002", "")]
        assert pilot.app.main.alerts.lines.marked == frozenset()  # type: ignore[attr-defined]


async def test_what_is_acknowledged_already_says_by_whom() -> None:
    async with showing(alarmed()) as (backend, pilot):
        text = await press(pilot, "5", "j", "j", "j", "j", "a")

        assert "already acknowledged by ana" in text
        assert backend.requests == []


async def test_m_mutes_what_is_chosen_for_as_long_as_is_typed() -> None:
    async with showing(alarmed()) as (backend, pilot):
        await press(pilot, "5", "m", "j", "tab", *"90m", "tab", *"known", "enter")

        verb, silence = backend.requests[-1]
        assert verb == "mute"
        assert silence == Silence(id="", rule="run-hung", until=NOW + 5_400.0, by="", why="known", made_at=0.0)


async def test_a_duration_that_makes_no_sense_is_asked_for_again() -> None:
    async with showing(alarmed()) as (backend, pilot):
        text = await press(pilot, "5", "m", "tab", *"soon", "enter")

        assert "type a duration such as 30m, 1h, 2d or 1w" in text
        assert backend.requests == []


async def test_m_on_what_is_muted_takes_it_back() -> None:
    async with showing(alarmed()) as (backend, pilot):
        await press(pilot, "5", "j", "j", "j", "j", "j", "m", "enter")

        assert backend.requests[-1] == ("unmute", "s1")


async def test_m_takes_back_a_mute_with_a_wildcard() -> None:
    state = alarmed()
    mute = replace(state.silences["s1"], rule="gpu-*", subject=None)
    async with showing(replace(state, silences={**state.silences, "s1": mute})) as (backend, pilot):
        await press(pilot, "5", "j", "j", "j", "j", "j", "m", "enter")

        assert backend.requests[-1] == ("unmute", "s1")


async def test_enter_on_a_silence_takes_it_back_and_a_window_is_left_to_the_config() -> None:
    async with showing(alarmed()) as (backend, pilot):
        await press(pilot, "5", *("j",) * 8, "enter", "enter")
        assert backend.requests == [("unmute", "s1")]

        text = await press(pilot, "j", "enter")
        assert "maintenance window of trainmon.toml" in text
        assert len(backend.requests) == 1


async def test_the_keys_work_on_an_alerts_own_screen() -> None:
    async with showing(alarmed()) as (backend, pilot):
        text = await press(pilot, "5", "enter")
        assert "Alert aaaa0001" in text

        await press(pilot, "a", "enter")
        assert backend.requests == [("acknowledge", "aaaa0001", "")]


async def test_an_alert_leads_to_its_run() -> None:
    async with showing(alarmed()) as (_, pilot):
        assert "╭─ Run llm-7b-a" in await press(pilot, "5", "enter", "enter")


async def test_capitals_do_nothing_among_alerts() -> None:
    async with showing(alarmed()) as (backend, pilot):
        await press(pilot, "5", "K", "C", "x")

        assert backend.requests == []
        assert len(pilot.app.screen_stack) == 1


async def test_a_new_critical_alert_rings_while_another_screen_is_open() -> None:
    backend = FakeBackend(with_alerts())
    app = Ringing(backend)
    async with running(app, size=(100, 30), notifications=True) as pilot:
        await at_rest(pilot)
        await press(pilot, "question_mark")
        backend.publish(with_alerts(alert(fired_at=NOW)))

        assert "CRITICAL  run-dead" in await settled(pilot)
        assert app.rung == 1
