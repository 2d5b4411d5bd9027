"""From pane to pane and from screen to screen: keys, jumps, the palette, clicks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.tui.backend import FakeBackend
from tests.tui.dashboard import publish, showing
from tests.tui.pilot import running
from tests.tui.screen_text import StillClock, arrive, at_rest, text_of
from tests.tui.states import plans
from tests.tui.states.states import NOW, calm, iterations, log, run, troubled
from trainmon.model import State
from tui.app import Dashboard
from tui.modals import Jump
from tui.panes import Pane
from tui.panes.gpus import METRICS
from tui.screens.details import LogScreen, NodeScreen, RunScreen
from tui.screens.main import MainScreen
from tui.widgets import placed


async def test_a_number_key_goes_to_the_pane_and_the_second_time_zooms_it() -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        await pilot.press("3")
        await at_rest(pilot)
        assert "3 Disk" in text_of(app)
        assert "4 Log" not in text_of(app)

        await pilot.press("3")
        await at_rest(pilot)
        assert "1 Runs" not in text_of(app)
        assert app.main.zoomed

        await pilot.press("escape")
        await at_rest(pilot)
        assert "1 Runs" in text_of(app)


async def test_charts_on_the_full_screen_before_there_is_a_run_show_the_first_one_that_comes() -> None:
    async with showing(State(at=NOW), (80, 24)) as (app, pilot, backend):
        await pilot.press("6", "6")
        await at_rest(pilot)
        assert "No run is selected" in text_of(app)
        await publish(app, pilot, backend, calm())
        assert app.main.wandb.run in calm().runs
        assert "No run is selected" not in text_of(app)


async def test_the_whole_frame_of_the_pane_with_the_focus_stands_out() -> None:
    async with showing(calm()) as (app, pilot, _):
        runs, disk = app.main.query_one("#runs", Pane), app.main.query_one("#disk", Pane)

        def colours(pane: Pane) -> list[Any]:
            return [next(iter(edge.render_line(0))).style for edge in (pane.top, pane.bottom)]

        on, off = colours(runs), colours(disk)
        await pilot.press("3")
        await at_rest(pilot)

        assert colours(disk) == on != off == colours(runs)


async def test_tab_walks_through_the_panes_in_sight() -> None:
    async with showing(troubled()) as (app, pilot, _):
        visited = []
        for _step in range(4):
            visited.append(app.main.current)
            await pilot.press("tab")
            await at_rest(pilot)

        assert sorted(visited) == ["1", "2", "3", "4"]


async def test_enter_opens_the_run_and_escape_comes_back() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("enter")
        await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)
        assert "81,204 of 120,000" in text_of(app)

        await pilot.press("escape")
        await at_rest(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_enter_on_a_node_opens_its_detail() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("2", "enter")
        await at_rest(pilot)

        assert isinstance(app.screen, NodeScreen)


async def test_l_opens_the_log_on_the_full_screen_and_keeps_it_up_to_date() -> None:
    async with showing(calm()) as (app, pilot, backend):
        await pilot.press("l")
        await at_rest(pilot)
        assert isinstance(app.screen, LogScreen)

        longer = run("llm-70b", log=log((*iterations(), "a fresh line")))
        await publish(app, pilot, backend, msgspec.structs.replace(calm(), at=NOW + 2, runs={"llm-70b": longer}))
        assert "a fresh line" in text_of(app)


async def test_the_log_search_finds_upwards_marks_and_says_when_there_is_none() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("l")
        arrive(app, "slash", *"12700", "enter")
        await at_rest(pilot)
        assert "12700/" in text_of(app)
        assert "lines below" in text_of(app)

        await pilot.press("slash", *"zzz", "enter")
        await at_rest(pilot)
        assert "no match for “zzz”" in text_of(app)


async def test_keys_that_were_typed_before_the_start_count() -> None:
    app = Dashboard(FakeBackend(calm()), clock=StillClock(), typed="2/gpu-003\r")
    async with running(app) as pilot:
        await at_rest(pilot)

        assert (app.main.current, app.main.gpus.filter, app.main.find.display) == ("2", "gpu-003", False)


@pytest.mark.parametrize(
    ("keys", "filtered"),
    [
        (("slash", *"gpu-003", "enter", "v"), "gpu-003"),
        (("slash", *"gpu-00x", "backspace", "3", "enter", "v"), "gpu-003"),
        (("slash", *"gpu-003", "escape", "v"), ""),
        (("slash", *"gpu", "enter", "slash", *"-003", "enter", "v"), "-003"),  # as when it is typed slowly
        (("slash", *"gpu", "enter", "slash", "end", *"-003", "enter", "v"), "gpu-003"),
    ],
)
async def test_a_key_right_after_the_filter_is_for_the_pane(keys: tuple[str, ...], filtered: str) -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("2")
        arrive(app, *keys)
        await at_rest(pilot)

        assert (app.main.gpus.filter, app.main.gpus.metric) == (filtered, METRICS[1])


LOG = "gpu-001:/scratch/llm-70b/slurm-418190.out"
COPIED = {
    "queued": (
        ("2", "gpu-007"), ("enter", "gpu-007"), ("escape 3", "/home"), ("enter", "lustre at /home on login1"),
        ("escape 7", "418223"), ("enter", "418223"), ("escape 4", LOG), ("1", "abl-3"), ("enter", LOG),
        ("escape l", LOG),
    ),
    "alarmed": (("5", "aaaa0001"), ("enter", "aaaa0001")),
    "wandb": (("6", "https://wandb.ai/team/project/runs/id3"),),
}  # fmt: skip
"""What y copies after which keys."""


@pytest.mark.parametrize("name", COPIED)
async def test_y_copies_in_every_pane_and_on_every_screen(name: str) -> None:
    async with showing(plans.STATES[name](), (80, 24)) as (app, pilot, _):
        for keys, copied in COPIED[name]:
            app.copy_to_clipboard("")
            for key in keys.split():
                await pilot.press(key)
                await at_rest(pilot)
            await pilot.press("y")
            assert app.clipboard == copied, keys


async def test_help_lists_this_panes_keys_first_and_closes_with_escape() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press("2", "question_mark")
        await at_rest(pilot)
        text = text_of(app)
        assert text.index("GPUs") < text.index("next metric; then")

        await pilot.press("escape")
        await at_rest(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_the_help_of_each_pane_explains_its_columns() -> None:
    explained = {
        "1": "the age of the last committed checkpoint", "2": "the mean GPU utilization", "3": "growth per day",
        "4": "search in the log", "5": "how long the condition has held", "6": "next page of charts",
        "7": "state, as in squeue",
    }  # fmt: skip
    async with showing(calm(), (120, 60)) as (app, pilot, _):
        for pane, words in explained.items():
            await pilot.press(pane, "question_mark")
            await at_rest(pilot)
            assert words in text_of(app), pane
            await pilot.press("escape")
            await at_rest(pilot)


async def test_jump_goes_to_the_pane_whose_letter_is_pressed() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("apostrophe", "s")
        await at_rest(pilot)

        assert app.main.current == "2"
        assert isinstance(app.screen, MainScreen), "the letter went no further: s alone opens the orders"


async def test_the_palette_goes_to_a_node_by_name() -> None:
    async with showing(calm()) as (app, pilot, _):
        arrive(app, "colon", *"node gpu-004", "enter")
        await at_rest(pilot)

        assert isinstance(app.screen, NodeScreen)


@pytest.mark.parametrize(
    "before", [("2", "enter"), ("2", "z"), ("enter",), ("slash", *"llm", "enter", "2")], ids=" ".join
)
async def test_go_to_run_shows_it_in_runs_from_every_place(before: tuple[str, ...]) -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press(*before)
        await at_rest(pilot)

        app.go_to_run("sft-1b")
        await at_rest(pilot)

        assert app.screen is app.main
        assert (app.main.current, app.main.runs.selected) == ("1", "sft-1b")
        assert app.main.runs.lines.has_focus
        assert "1 Runs" in text_of(app)
        assert "sft-1b" in text_of(app)


async def test_a_click_selects_the_row_and_a_double_click_opens_it() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.click(app.main.runs.lines, offset=(10, 2))
        await at_rest(pilot)
        assert app.main.runs.selected == "llm-70b"

        await pilot.click(app.main.runs.lines, offset=(10, 1), times=2)
        await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)


async def test_a_click_on_the_footer_presses_its_key() -> None:
    async with showing(troubled()) as (app, pilot, _):
        column = next(start for key, _, start in placed(app.main.foot.keys()) if key.short == "Zoom")
        await pilot.click(app.main.foot, offset=(column, 0))
        await at_rest(pilot)

        assert app.main.zoomed


async def test_keys_typed_faster_than_the_screen_go_where_they_were_meant() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press("2", "enter")
        await at_rest(pilot)

        assert isinstance(app.screen, NodeScreen)


@pytest.mark.parametrize(
    ("state", "leads", "opens"),
    [
        ("troubled", (), ("enter",)), ("troubled", ("2",), ("enter",)), ("troubled", ("3",), ("enter",)),
        ("calm", (), ("l",)), ("calm", (), ("l", "slash", *"loss", "enter")), ("alarmed", ("5",), ("enter",)),
        ("alarmed", ("5",), ("o",)), ("queued", ("7", "j"), ("enter",)),
        ("attempted", ("j", "enter", *"jjjjjjjj"), ("enter",)), ("wandb", (), ("colon", *"charts of", "enter")),
        ("calm", (), ("u",)), ("calm", (), ("question_mark",)), ("queued", ("j", "enter"), ("question_mark",)),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)  # fmt: skip
async def test_q_and_backspace_go_back_from_each_screen_over_the_panes(
    state: str, leads: tuple[str, ...], opens: tuple[str, ...]
) -> None:
    async with showing(plans.STATES[state](), (80, 24), plans.planning(plans.STATES[state]())) as (app, pilot, _):
        await pilot.press(*leads)
        await at_rest(pilot)
        depth = len(app.screen_stack)
        # The help is a dialog: in it, Backspace means nothing.
        for key in ("q", "backspace") if "question_mark" not in opens else ("q",):
            await pilot.press(*opens)
            await at_rest(pilot)
            assert len(app.screen_stack) == depth + 1

            await pilot.press(key)
            await at_rest(pilot)
            assert app.is_running
            assert len(app.screen_stack) == depth


async def test_q_typed_in_a_search_is_text_and_ctrl_q_quits_from_everywhere() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press("l", "slash", "q", "backspace", "q")
        await at_rest(pilot)
        assert isinstance(app.screen, LogScreen)
        assert app.screen.find.value == "q"

        await pilot.press("ctrl+q")
        await at_rest(pilot)
        assert not app.is_running


@pytest.mark.parametrize("size", [(50, 12), (80, 24), (120, 40), (200, 60)])
async def test_jump_labels_lead_to_panes_only_and_every_other_key_just_closes(size: tuple[int, int]) -> None:
    async with showing(plans.acting(), size) as (app, pilot, backend):
        for key in "ajqKk" if size != (80, 24) else "asdfghjklqwertyuiopASKRCX":
            before = app.main.current
            await pilot.press("apostrophe")
            await at_rest(pilot)
            assert isinstance(app.screen, Jump)
            numbers = {number for number, _ in app.screen.targets.values()}
            target = app.screen.targets.get(key)
            assert numbers == {number for number in "1234567" if app.main.panes[number].display}

            await pilot.press(key)
            await at_rest(pilot)
            assert app.is_running
            assert app.screen is app.main
            assert app.main.current == (before if target is None else target[0]), key
            assert backend.requests == [], key
