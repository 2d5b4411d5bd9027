"""From a capital on the dashboard to what is asked of the backend, and from States to what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running, thing_shown
from tests.tui.screen_text import arrive, at_rest, dashboard, settled, text_of
from tests.tui.states import plans
from tests.tui.states.states import NOW
from tests.tui.terminal import Terminal
from trainmon.model import Milestone, State
from tui.app import Dashboard
from tui.modals import Pick, PlanScreen
from tui.screens.main import MainScreen
from tui.views.actions import action_request, hosts_text, subjects_text
from tui.widgets import placed


@asynccontextmanager
async def showing(
    state: State, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = FakeBackend(state)
    backend.plan = plans.kills
    app = dashboard(backend)
    async with running(app, size=size, notifications=True) as pilot:
        await at_rest(pilot)
        yield app, pilot, backend


async def publish(app: Dashboard, pilot: Pilot[None], backend: FakeBackend, state: State) -> None:
    app.clock.at += 2.0  # type: ignore[attr-defined]
    backend.publish(state)
    await at_rest(pilot)


def planned(backend: FakeBackend) -> Sequence[object]:
    return [what[1:] for what in backend.requests if what[0] == "prepare"]


# ---- what a key means on a row ----


def test_a_job_of_a_run_means_its_run_where_only_runs_can() -> None:
    state = plans.with_jobs()
    job = ("job", "prod/418190")

    assert action_request("save", [job], state, NOW).subjects == ("llm-70b",)  # type: ignore[union-attr,list-item]
    assert action_request("requeue", [job], state, NOW).subjects == ("prod/418190",)  # type: ignore[union-attr,list-item]
    assert action_request("save", [job, ("run", "llm-70b")], state, NOW).subjects == ("llm-70b",)  # type: ignore[union-attr,list-item]


def test_a_key_on_a_row_that_it_is_not_about_says_where_it_acts() -> None:
    state = plans.with_jobs()

    assert action_request("kill", [("node", "gpu-001")], state, NOW) == (
        "K acts on a run or a job: put the cursor on one, in 1 Runs or 7 Queue"
    )
    assert action_request("exclude", [("run", "llm-70b")], state, NOW) == (
        "X acts on a node: put the cursor on one, in 2 GPUs or 7 Queue"
    )


def test_h_releases_what_is_held_and_holds_what_waits() -> None:
    state = plans.with_jobs()
    waiting = ("job", "prod/418500")
    held = replace(state, jobs={**state.jobs, "prod/418500": plans.job(418500, "PENDING", reason="JobHeldUser",
                                                                        priority=0)})  # fmt: skip

    assert action_request("hold", [waiting], state, NOW).verb == "hold"  # type: ignore[union-attr,list-item]
    assert action_request("hold", [waiting], held, NOW).verb == "release"  # type: ignore[union-attr,list-item]


def test_the_dialog_names_the_job_and_the_host_that_is_queried() -> None:
    state = plans.with_jobs()
    one = action_request("cancel", [("job", "prod/418190")], state, NOW)
    assert not isinstance(one, str)

    assert (subjects_text(one.subjects, state, one.verb), hosts_text(one, state)) == ("job 418190", "login1")


# ---- the plan stays on what was captured ----


async def test_the_plan_stays_on_its_job_when_rows_are_sorted_and_removed_and_rebuilt() -> None:
    state = plans.with_jobs()
    async with showing(state) as (app, pilot, backend):
        backend.plan = None
        assert app.main.runs.selected == "llm-7b-a"
        await pilot.press("K")
        await at_rest(pilot)

        app.main.runs.set_sort("name")
        fewer = {name: one for name, one in state.runs.items() if name != "llm-7b-a"}
        await publish(app, pilot, backend, replace(state, at=NOW + 2.0, runs=fewer))
        assert app.main.runs.selected != "llm-7b-a"
        assert isinstance(app.screen, PlanScreen)
        assert "Kill: llm-7b-a" in text_of(app)

        await publish(app, pilot, backend, replace(state, at=NOW + 4.0))
        request, reply = backend.replies[0]
        reply(plans.kills(request))
        await at_rest(pilot)
        await pilot.press("tab", "enter")
        await at_rest(pilot)
        assert [action.subject for action in backend.acted] == ["llm-7b-a"]


async def test_enter_right_after_the_capital_closes_and_never_acts() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        await pilot.press("K", "enter")
        await at_rest(pilot)

        assert isinstance(app.screen, MainScreen)
        assert planned(backend) == [("kill", ("llm-7b-a",))]
        assert backend.acted == []


# ---- marks ----


async def test_marked_rows_get_one_plan_and_lose_their_marks_only_when_it_is_agreed_to() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        await pilot.press("space", "space")
        await at_rest(pilot)
        assert "2 marked" in text_of(app)

        app.main.runs.set_sort("name")
        await pilot.press("K", "escape")
        await at_rest(pilot)
        assert len(app.main.runs.lines.marked) == 2

        await pilot.press("K", "tab", "enter")
        await at_rest(pilot)
        assert sorted(action.subject for action in backend.acted) == ["abl-3", "llm-7b-a"]
        assert "marked" not in text_of(app)


async def test_marks_outlive_a_filter_and_say_that_they_are_hidden_and_go_with_their_run() -> None:
    state = plans.with_jobs()
    async with showing(state) as (app, pilot, backend):
        await pilot.press("space")
        app.main.runs.set_filter("llm-70b")
        await at_rest(pilot)
        assert "1 marked, 1 of them hidden" in text_of(app)
        assert app.main.runs.subjects() == (("run", "llm-7b-a"),)

        fewer = {name: one for name, one in state.runs.items() if name != "llm-7b-a"}
        await publish(app, pilot, backend, replace(state, at=NOW + 2.0, runs=fewer))
        assert "marked" not in text_of(app)
        assert app.main.runs.subjects() == (("run", "llm-70b"),)


# ---- where nothing acts ----


async def test_read_only_keeps_the_keys_in_sight_and_says_how_to_change_that() -> None:
    async with showing(plans.with_jobs(read_only=True), (80, 24)) as (app, pilot, backend):
        assert "K Kill" in text_of(app)
        assert app.main.foot.read_only
        await pilot.press("K")
        text = await settled(pilot)

        assert isinstance(app.screen, MainScreen)
        assert "READ-ONLY" in text
        assert "--read-only" in text
        assert planned(backend) == []


async def test_capitals_do_nothing_in_a_log_and_among_disks() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        for pane in "43":
            await pilot.press(pane, "K", "S", "N", "x")
            await at_rest(pilot)

            assert isinstance(app.screen, MainScreen)
        assert planned(backend) == []


async def test_on_a_node_only_x_acts() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        await pilot.press("2", "K")
        await at_rest(pilot)
        assert "K acts on a run or a job" in text_of(app)
        await pilot.press("X")
        await at_rest(pilot)

        assert planned(backend) == [("exclude", (app.main.gpus.selected,))]


async def test_the_palette_opens_a_plan_by_its_verb() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        arrive(app, "colon", *"requ", "enter")
        await at_rest(pilot)

        assert planned(backend) == [("requeue", ("llm-7b-a",))]
        assert isinstance(app.screen, PlanScreen)


async def test_the_palette_goes_to_a_job_by_its_number() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        arrive(app, "colon", *"418500", "enter")
        await at_rest(pilot)

        assert thing_shown(app) == "job"
        assert ("look at job", "prod/418500") in backend.requests
        await pilot.press("C")
        await at_rest(pilot)
        assert planned(backend) == [("cancel", ("prod/418500",))]


async def test_a_click_on_the_footer_opens_a_plan() -> None:
    async with showing(plans.with_jobs()) as (app, pilot, backend):
        column = next(start for key, _, start in placed(app.main.foot.keys()) if key.short == "Requeue")
        await pilot.click(app.main.foot, offset=(column, 0))
        await at_rest(pilot)

        assert planned(backend) == [("requeue", ("llm-7b-a",))]


# ---- what is told ----


async def test_what_becomes_of_an_action_is_shown_as_it_happens() -> None:
    state = plans.with_jobs()
    async with showing(state) as (app, pilot, backend):
        open_mark, taken = Milestone("the file is taken"), Milestone("the file is taken", NOW + 13.0)
        await publish(app, pilot, backend, replace(state, actions={"a1": plans.record("done", open_mark)}))
        assert "done" in text_of(app)

        await pilot.press("p")
        await publish(app, pilot, backend, replace(state, actions={"a1": plans.record("done", taken)}))
        assert "the file is taken after 12s" in text_of(app), "a held screen holds no message back"


@pytest.mark.parametrize(("key", "ends"), [("enter", False), ("ctrl+q", True)])
async def test_quitting_asks_while_an_action_is_on_its_way(key: str, ends: bool) -> None:
    state = replace(plans.with_jobs(), actions={"a1": plans.record("asked")})
    async with showing(state) as (app, pilot, _):
        await pilot.press("q")
        await at_rest(pilot)
        assert isinstance(app.screen, Pick)
        assert "1 action still running: Save llm-70b" in text_of(app)

        await pilot.press(key)
        await pilot.pause()
        assert app._exit == ends


async def test_quitting_asks_nothing_when_all_is_done() -> None:
    state = replace(plans.with_jobs(), actions={"a1": plans.record("done")})
    async with showing(state) as (app, pilot, _):
        await pilot.press("q")
        await pilot.pause()

        assert app._exit


@pytest.mark.parametrize(
    ("env", "sign", "danger"),
    [({"NO_COLOR": "1"}, "›[ Close ]", "▲"), ({"TRAINMON_ASCII": "1"}, ">[ Close ]", "!")],
    ids=["plain", "ascii"],
)
def test_on_a_real_terminal_a_plan_is_read_confirmed_and_reported_without_any_colour(
    env: dict[str, str], sign: str, danger: str
) -> None:
    with Terminal("-m", "tests.tui.live", "acting", size=(80, 24), env=env) as terminal:
        assert terminal.shows("K Kill")
        terminal.press("jK")
        assert terminal.shows("While it is armed, it also ends the 9 pending jobs"), terminal.text
        assert terminal.shows(sign), terminal.text
        assert terminal.shows(f"[ {danger} Kill ]")
        terminal.press("G")
        assert terminal.shows("creates          /fsx/llm-70b/kill-switch"), terminal.text
        terminal.press("\t")
        assert terminal.shows(f"{sign[0]}[ {danger} Kill ]")
        terminal.press("\r")
        assert terminal.shows("the file appears after 2s"), terminal.text
        assert terminal.bytes.isascii() == ("TRAINMON_ASCII" in env)
