"""A dialog ends once: keys that arrive together close it, and nothing below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.geometry import Offset
from textual.screen import Screen

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import StillClock, arrive, at_rest, dashboard
from tests.tui.states import plans
from tests.tui.states.states import NOW
from trainmon.model import ActionRequest, Prompt
from tui.modals.dialog import Dialog, Jump, LoginPrompt, Pick, TextPrompt
from tui.modals.menu import CommandPalette, Menu
from tui.modals.plan import PlanScreen
from tui.screens.details import RunScreen
from tui.screens.main import MainScreen

KILL = ActionRequest(verb="kill", subjects=("llm-7b-a",), requested_at=NOW)


def plan() -> PlanScreen:
    backend = FakeBackend()
    backend.plan = plans.kills
    return PlanScreen(KILL, backend, StillClock())


DIALOGS: tuple[tuple[Callable[[], Dialog[Any]], tuple[str, ...], str], ...] = (
    (plan, (), "enter"),
    (plan, ("tab",), "enter"),
    (plan, (), "escape"),
    (lambda: Pick("Order", [("a", "a"), ("b", "b")]), (), "enter"),
    (lambda: Jump([("pane 1", Offset(1, 1))]), (), "a"),
    (lambda: Jump([("pane 1", Offset(1, 1))]), (), "escape"),
    (lambda: TextPrompt("Acknowledge?", "it", verb="acknowledges"), (), "enter"),
    (lambda: TextPrompt("Fetch?", verb="fetches", value="/tmp"), (), "enter"),
    (lambda: Menu([("run", "llm-7b-a")], plans.acting(), NOW), (), "enter"),
    (
        lambda: LoginPrompt(Prompt(id=1, host="gpu-001", title="password", fields=(("Password:", False),))),
        (),
        "enter",
    ),
    (lambda: CommandPalette([]), (), "escape"),
)


@pytest.mark.parametrize(("dialog", "before", "key"), DIALOGS)
async def test_a_key_that_arrives_three_times_ends_it_once(
    dialog: Callable[[], Dialog[Any]], before: tuple[str, ...], key: str
) -> None:
    app, answers, below = ActionApp(FakeBackend()), list[object](), Screen[None]()
    async with running(app, size=(80, 24)) as pilot:
        app.push_screen(below)
        app.push_screen(dialog(), answers.append)
        await at_rest(pilot)
        await pilot.press(*before)
        arrive(app, key, key, key)
        await at_rest(pilot)

        assert app.screen is below
        assert len(answers) == 1


async def test_enter_held_on_a_row_opens_one_screen_and_none_over_a_plan() -> None:
    backend = FakeBackend(plans.with_jobs())
    app = dashboard(backend)
    async with running(app, size=(120, 40)) as pilot:
        await at_rest(pilot)
        arrive(app, "enter", "enter")
        await at_rest(pilot)
        assert [type(screen) for screen in app.screen_stack] == [MainScreen, RunScreen]

        await pilot.press("escape")
        arrive(app, "enter", "K")
        await at_rest(pilot)
        assert [type(screen) for screen in app.screen_stack] == [MainScreen, PlanScreen]


async def test_enter_held_on_a_button_that_acts_acts_once_and_stays_on_the_screen() -> None:
    backend = FakeBackend(plans.with_jobs())
    backend.plan = plans.kills
    app = dashboard(backend)
    async with running(app, size=(120, 40)) as pilot:
        await at_rest(pilot)
        await pilot.press("enter")
        await at_rest(pilot)
        await pilot.press("K", "tab")
        await at_rest(pilot)
        arrive(app, "enter", "enter")
        await at_rest(pilot)

        assert isinstance(app.screen, RunScreen)
        assert [action.verb for action in backend.acted] == ["kill"]
