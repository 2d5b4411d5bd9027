"""Keys that arrive before a dialog is drawn, widgets that are hidden, and toasts: none of them does harm."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest
from msgspec.structs import replace
from textual.widget import Widget

from tests.tui.backend import FakeBackend
from tests.tui.dashboard import publish, showing
from tests.tui.screen_text import arrive, at_rest, text_of
from tests.tui.states import plans
from tests.tui.states.states import calm
from trainmon.model import ActionRequest
from tui.app import Dashboard
from tui.modals import Mute, PlanScreen, TextPrompt
from tui.services.actions import QuitPrompt


def answering() -> FakeBackend:
    backend = FakeBackend(plans.acting())
    backend.plan = plans.planned(plans.acting())
    return backend


def is_displayed(widget: Widget) -> bool:
    return all(node.display for node in widget.ancestors_with_self)


def plan_of(app: Dashboard) -> PlanScreen:
    assert isinstance(app.screen, PlanScreen)
    return app.screen


@pytest.mark.parametrize("keys", [("R", "right", "enter"), ("K", "right", "right", "enter"), ("K", "tab", "enter"),
                                  ("R", "tab", "tab", "tab", "enter"), ("S", "enter")], ids=" ".join)  # fmt: skip
async def test_keys_that_arrive_before_the_plan_is_drawn_press_nothing(keys: tuple[str, ...]) -> None:
    async with showing(plans.acting(), (80, 24), answering()) as (app, pilot, backend):
        arrive(app, *keys)
        await at_rest(pilot)

        assert plan_of(app).close_button.has_focus
        assert [verb for _, verb, *_ in backend.requests] == [plan_of(app).request.verb]
        assert backend.acted == []

        await pilot.press("right", "enter")
        await at_rest(pilot)
        assert len(backend.acted) == 1, "the plan is drawn now"


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=str)
async def test_keys_count_from_the_frame_that_says_which_ones(size: tuple[int, int]) -> None:
    promised = []
    async with showing(plans.acting(), size, answering()) as (app, pilot, _):

        def check() -> None:
            type(app).post_display_hook(app)
            if isinstance(app.screen, PlanScreen):
                strips = app.screen._compositor.render_strips()
                if "action button" in "".join(segment.text for strip in strips for segment in strip):
                    promised.append(app.screen.drawn_at < inf)

        app.post_display_hook = check  # type: ignore[method-assign]
        await pilot.press("R")
        while not promised:
            await pilot.pause(0.02)
        assert all(promised)


async def test_keys_are_dropped_again_while_a_changed_plan_is_read_and_escape_always_closes() -> None:
    held = FakeBackend(plans.acting())
    async with showing(plans.acting(), (80, 24), held) as (app, pilot, backend):
        await pilot.press("S")
        await at_rest(pilot)
        await pilot.press("right", "tab", "enter")
        assert plan_of(app).close_button.has_focus

        ask, reply = backend.replies[-1]
        reply(plans.planned(plans.acting())(ask))
        await at_rest(pilot)
        plan_of(app).set_focus(plan_of(app).why)
        await pilot.press(*"later", "tab")
        await at_rest(pilot)
        assert backend.replies[-1][0].why == "later"
        await pilot.press("right", "enter")
        await at_rest(pilot)
        assert backend.acted == []
        assert isinstance(app.screen, PlanScreen)

        await pilot.press("escape")
        await at_rest(pilot)
        assert app.screen is app.main


@pytest.mark.parametrize(("opens", "dialog"), [("a", TextPrompt), ("m", Mute)])
async def test_keys_that_arrive_before_a_dialog_that_acts_is_drawn_are_dropped(opens: str, dialog: type) -> None:
    async with showing(plans.STATES["alarmed"](), (80, 24)) as (app, pilot, backend):
        await pilot.press("5", "j")
        await at_rest(pilot)
        arrive(app, opens, "enter")
        await at_rest(pilot)
        assert isinstance(app.screen, dialog)
        assert backend.requests == []

        await pilot.press("enter")
        await at_rest(pilot)
        assert len(backend.requests) == 1


async def test_q_and_enter_in_one_packet_do_not_quit_while_an_action_runs() -> None:
    backend = FakeBackend(replace(plans.with_jobs(), actions={"a1": plans.record()}))
    async with showing(backend.state or calm(), (80, 24), backend) as (app, pilot, _):
        arrive(app, "q", "j", "enter")
        await at_rest(pilot)
        assert isinstance(app.screen, QuitPrompt)


async def test_no_arrow_and_no_tab_focuses_a_button_that_is_not_drawn() -> None:
    backend = FakeBackend(plans.with_jobs())
    backend.plan = plans.kills
    keys = ("right", "right", "right", "right", "tab", "tab", "tab", "tab", "shift+tab", "left", "right")
    async with showing(plans.with_jobs(), (80, 24), backend) as (app, pilot, _):
        for verb, run in product(("requeue", "kill", "signal", "hold", "save"), ("llm-7b-a", "llm-70b")):
            app.actions.open(ActionRequest(verb=verb, subjects=(run,), requested_at=0.0))  # type: ignore[arg-type]
            await at_rest(pilot)
            for key in keys:
                await pilot.press(key)
                assert app.focused is not None
                assert is_displayed(app.focused), (verb, run, key)
            await pilot.press("escape")
            await at_rest(pilot)


async def test_a_hidden_widget_takes_no_focus_and_loses_the_one_it_has() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        before = app.focused
        for hidden in (app.main.find, app.main.alerts.lines, app.main.queue.lines):
            assert not is_displayed(hidden)
            hidden.focus()
            app.screen.set_focus(hidden)
            await at_rest(pilot)
            assert app.focused is before

        await pilot.press("slash")
        app.main.find.display = False
        arrive(app, "7")
        await at_rest(pilot)
        assert app.main.find.value == "", "the key has not gone into a hidden field"
        assert app.main.current == "7"


async def test_a_field_that_disappears_with_a_refusal_leaves_the_focus_on_close() -> None:
    held = FakeBackend(plans.with_jobs())
    async with showing(plans.with_jobs(), (80, 24), held) as (app, pilot, backend):
        await pilot.press("K")
        await at_rest(pilot)
        ask, reply = backend.replies[-1]
        reply(plans.kills(ask))
        await at_rest(pilot)
        await pilot.press("tab", "tab", "shift+tab")
        screen = plan_of(app)
        screen.set_focus(screen.why)
        screen.request_plan(ask)
        backend.replies[-1][1](plans.refuses(ask))
        await at_rest(pilot)
        assert screen.close_button.has_focus

        await pilot.press("enter")
        await at_rest(pilot)
        assert app.screen is app.main


async def test_a_toast_waits_until_the_dialog_closes_and_its_frame_names_it() -> None:
    async with showing(plans.acting(), (80, 24), answering()) as (app, pilot, backend):
        app.notify("before the dialog", timeout=60)
        await at_rest(pilot)
        assert "before the dialog" in text_of(app)
        await pilot.press("K")
        await at_rest(pilot)
        assert "before the dialog" not in text_of(app)

        app.notify("a second line\nllm-70b has ended", title="run-dead", timeout=60, markup=False)
        await publish(app, pilot, backend, replace(plans.acting(), at=1.0))
        text = text_of(app)
        assert "run-dead: llm-70b has ended ─╯" in text
        assert "a second line" not in text
        assert "[ Close ]" in text

        await pilot.press("escape")
        await at_rest(pilot)
        assert "a second line" in text_of(app)


async def test_of_many_toasts_that_wait_the_newest_are_shown() -> None:
    async with showing(plans.acting(), (80, 24), answering()) as (app, pilot, _):
        await pilot.press("question_mark")
        await at_rest(pilot)
        for number in range(30):
            app.notify(f"toast {number}", timeout=60)
        await pilot.press("escape")
        await at_rest(pilot)
        assert [toast.message for toast in app._notifications] == [f"toast {number}" for number in range(22, 30)]


async def test_enter_and_q_in_one_packet_open_a_screen_and_go_back() -> None:
    async with showing(plans.acting(), (120, 40)) as (app, pilot, _):
        await pilot.press("j", "k")
        arrive(app, "enter", "q")
        await at_rest(pilot)

        assert app.is_running
        assert app.screen is app.main

        await pilot.press("enter")
        await at_rest(pilot)
        assert app.screen is not app.main, "Enter alone opens it"


async def test_a_reason_that_is_typed_at_once_is_complete_and_sent_only_by_a_later_enter() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        answers: list[str | None] = []
        app.push_screen(TextPrompt("Why?", verb="acknowledges"), answers.append)
        arrive(app, *"bad node", "enter")
        await at_rest(pilot)
        assert "bad node" in text_of(app)
        assert not answers

        await pilot.press(*" 7", "enter")
        await at_rest(pilot)
        assert answers == ["bad node 7"]
