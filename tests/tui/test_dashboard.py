"""Keys, focus, filters and failures on a running dashboard."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from textual import events
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.screen_text import arrive, dashboard, settled, text_of
from tests.tui.states.states import NOW, asking, calm, empty, iterations, log, run, source, troubled
from trainmon.model import Prompt, State
from tui.app import Dashboard
from tui.modals import LoginPrompt
from tui.panes import Pane
from tui.screens import MainScreen
from tui.screens.details import LogScreen, NodeScreen, RunScreen


async def publish(app: Dashboard, pilot: Pilot[None], backend: FakeBackend, state: State) -> None:
    """A State comes two seconds later, and is on the screen."""
    app.clock.at += 2.0  # type: ignore[attr-defined]
    backend.publish(state)
    await settled(pilot)


@asynccontextmanager
async def showing(
    state: State, size: tuple[int, int] = (120, 40), backend: FakeBackend | None = None
) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = backend or FakeBackend(state)
    app = dashboard(backend)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot)
        yield app, pilot, backend


async def test_it_shows_runs_gpus_disks_and_the_log_of_the_worst_run() -> None:
    async with showing(troubled()) as (app, _, _backend):
        text = text_of(app)

        for words in ("1 Runs", "2 GPUs", "3 Disk", "4 Log llm-7b-a", "gpu-003", "/scratch", "ssh 6/8", "14:13:20Z"):
            assert words in text


async def test_the_log_and_the_reason_follow_the_selected_run() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("j")
        await settled(pilot)

        assert "4 Log abl-3" in text_of(app)
        assert "abl-3: diverged, the loss is nan" in text_of(app)


async def test_a_number_key_goes_to_the_pane_and_the_second_time_zooms_it() -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        await pilot.press("3")
        await settled(pilot)
        assert "3 Disk" in text_of(app)
        assert "4 Log" not in text_of(app)

        await pilot.press("3")
        await settled(pilot)
        assert "1 Runs" not in text_of(app)
        assert app.main.zoomed

        await pilot.press("escape")
        await settled(pilot)
        assert "1 Runs" in text_of(app)


async def test_the_whole_frame_of_the_pane_with_the_focus_stands_out() -> None:
    async with showing(calm()) as (app, pilot, _):
        runs, disk = app.main.query_one("#runs", Pane), app.main.query_one("#disk", Pane)

        def colours(pane: Pane) -> list[Any]:
            return [next(iter(edge.render_line(0))).style for edge in (pane.top, pane.bottom)]

        on, off = colours(runs), colours(disk)
        await pilot.press("3")
        await settled(pilot)

        assert colours(disk) == on != off == colours(runs)


async def test_tab_walks_through_the_panes_in_sight() -> None:
    async with showing(troubled()) as (app, pilot, _):
        visited = []
        for _step in range(4):
            visited.append(app.main.current)
            await pilot.press("tab")
            await settled(pilot)

        assert sorted(visited) == ["1", "2", "3", "4"]


async def test_the_cursor_stays_on_its_run_when_the_order_changes_and_when_others_go() -> None:
    async with showing(troubled()) as (app, pilot, backend):
        await pilot.press("j", "j")
        assert app.main.runs.selected == "llm-70b"

        app.main.runs.set_sort("name")
        assert app.main.runs.selected == "llm-70b"

        fewer = {name: one for name, one in troubled().runs.items() if name != "abl-3"}
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 2, runs=fewer))
        assert app.main.runs.selected == "llm-70b"


async def test_the_filter_acts_while_it_is_typed_enter_keeps_it_and_escape_clears_it() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("slash", "h", "u", "n", "g")
        await settled(pilot)
        assert "/hung  1 of 5" in text_of(app)

        await pilot.press("enter")
        await settled(pilot)
        assert app.main.runs.filter == "hung"
        assert app.main.runs.lines.has_focus

        await pilot.press("escape")
        await settled(pilot)
        assert app.main.runs.filter == ""


async def test_escape_takes_messages_away_that_cover_rows() -> None:
    async with showing(troubled(), size=(80, 24)) as (app, pilot, _):
        await pilot.press("r")
        await settled(pilot)
        assert "polling all sources" in text_of(app)

        await pilot.press("escape")
        await settled(pilot)
        assert "polling all sources" not in text_of(app)


async def test_keys_that_come_in_one_burst_are_handled_one_after_the_other() -> None:
    """A slow line delivers what was typed in one packet: none of it may reach what had the focus before."""
    async with showing(troubled(), size=(160, 50)) as (app, pilot, _):
        for key in "2/p":
            app.post_message(events.Key({"/": "slash"}.get(key, key), key))
        await settled(pilot)
        assert isinstance(app.screen, MainScreen)
        assert app.screen.find.value == "p"
        assert app.screen.pane is app.screen.gpus
        assert "PAUSED" not in text_of(app)


async def test_the_sort_picker_offers_the_panes_sort_orders_and_escape_changes_nothing() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("s", "escape")
        await settled(pilot)
        assert app.main.runs.sort == "worst"

        await pilot.press("s", "j", "enter")
        await settled(pilot)
        assert app.main.runs.sort == "name"


async def test_a_pane_that_raises_says_so_with_its_age_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async with showing(calm()) as (app, pilot, backend):

        def broken(state: State, width: int) -> None:
            message = "no such disk"
            raise KeyError(message)

        app.main.disk.draw = broken  # type: ignore[method-assign]
        with caplog.at_level(logging.CRITICAL):
            await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 1))
            await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 13))

        text = text_of(app)
        assert "failed 12s ago" in text
        assert "KeyError: 'no such disk'" in text
        assert "94!" in text


async def test_pause_holds_the_screen_and_says_so_and_letting_go_shows_the_latest() -> None:
    async with showing(calm()) as (app, pilot, backend):
        await pilot.press("p")
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 5))
        assert "PAUSED" in text_of(app)
        assert "llm-7b-a" not in text_of(app)

        await pilot.press("p")
        await settled(pilot)
        assert "PAUSED" not in text_of(app)
        assert "llm-7b-a" in text_of(app)


async def test_enter_opens_the_run_and_escape_comes_back() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, RunScreen)
        assert "81,204 of 120,000" in text_of(app)

        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_enter_on_a_node_opens_its_detail() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("2", "enter")
        await settled(pilot)

        assert isinstance(app.screen, NodeScreen)


async def test_l_opens_the_log_on_the_full_screen_and_keeps_it_up_to_date() -> None:
    async with showing(calm()) as (app, pilot, backend):
        await pilot.press("l")
        await settled(pilot)
        assert isinstance(app.screen, LogScreen)

        longer = run("llm-70b", log=log((*iterations(), "a fresh line")))
        await publish(app, pilot, backend, msgspec.structs.replace(calm(), at=NOW + 2, runs={"llm-70b": longer}))
        assert "a fresh line" in text_of(app)


async def test_the_log_search_finds_upwards_marks_and_says_when_there_is_none() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("l")
        arrive(app, "slash", *"12700", "enter")
        await settled(pilot)
        assert "12700/" in text_of(app)
        assert "lines below" in text_of(app)

        await pilot.press("slash", *"zzz", "enter")
        await settled(pilot)
        assert "no match for “zzz”" in text_of(app)


async def test_help_lists_this_panes_keys_first_and_closes_with_escape() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press("2", "question_mark")
        await settled(pilot)
        text = text_of(app)
        assert text.index("GPUs") < text.index("next metric: temperature")

        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_jump_goes_to_the_pane_whose_letter_is_pressed() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("apostrophe", "s")
        await settled(pilot)

        assert app.main.current == "2"
        assert isinstance(app.screen, MainScreen), "the letter went no further: s alone opens the orders"


async def test_the_palette_goes_to_a_node_by_name() -> None:
    async with showing(calm()) as (app, pilot, _):
        arrive(app, "colon", *"node gpu-004", "enter")
        await settled(pilot)

        assert isinstance(app.screen, NodeScreen)


@pytest.mark.parametrize(
    "before", [("2", "enter"), ("2", "z"), ("enter",), ("slash", *"llm", "enter", "2")], ids=" ".join
)
async def test_go_to_run_shows_it_in_runs_from_every_place(before: tuple[str, ...]) -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press(*before)
        await settled(pilot)

        app.go_to_run("sft-1b")
        await settled(pilot)

        assert app.screen is app.main
        assert (app.main.current, app.main.runs.selected) == ("1", "sft-1b")
        assert app.main.runs.lines.has_focus
        assert "1 Runs" in text_of(app)
        assert "sft-1b" in text_of(app)


async def test_copy_puts_the_name_on_the_clipboard() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("y")
        await settled(pilot)

        assert app.clipboard == "llm-70b"


async def test_refresh_sends_one_request_to_the_backend_per_press() -> None:
    async with showing(calm()) as (_, pilot, backend):
        await pilot.press("r")
        await settled(pilot)

        assert backend.requests == [("refresh",)]


async def test_an_empty_cluster_says_how_to_name_a_run() -> None:
    async with showing(empty()) as (app, _, _backend):
        assert "[[run]]" in text_of(app)


async def test_a_question_names_its_host_hides_what_is_typed_and_gives_the_answer() -> None:
    async with showing(asking()) as (app, pilot, backend):
        assert isinstance(app.screen, LoginPrompt)
        await pilot.press(*"123456")
        await settled(pilot)
        text = text_of(app)
        assert "gpu-001 asks: Duo two-factor" in text
        assert "Passcode or option (1-2):" in text
        assert "123456" not in text

        await pilot.press("enter")
        await settled(pilot)
        assert backend.requests == [("answer", 7, ("123456",))]


async def test_questions_come_one_at_a_time_and_escape_declines() -> None:
    two = asking(
        Prompt(id=1, host="a", title="Password", fields=(("Password: ", False),)), Prompt(id=2, host="b", title="Code")
    )
    async with showing(two) as (app, pilot, backend):
        assert "a asks: Password" in text_of(app)
        assert "1 more to answer" in text_of(app)

        await pilot.press("escape")
        await settled(pilot)
        assert "b asks: Code" in text_of(app)

        await pilot.press("enter")
        await settled(pilot)
        assert backend.requests == [("answer", 1, None), ("answer", 2, ())]
        assert isinstance(app.screen, MainScreen)


async def test_a_login_prompt_that_is_no_longer_needed_closes_by_itself() -> None:
    async with showing(asking()) as (app, pilot, backend):
        await publish(app, pilot, backend, calm())

        assert isinstance(app.screen, MainScreen)


async def test_a_question_waits_until_nobody_types_so_that_no_key_answers_it() -> None:
    async with showing(calm()) as (app, pilot, backend):
        await pilot.press("slash", *"llm")
        backend.publish(asking())
        await settled(pilot)
        await pilot.press(*"-7", "enter")
        await settled(pilot)
        assert isinstance(app.screen, MainScreen)
        assert (app.main.runs.filter, backend.requests) == ("llm-7", [])

        await publish(app, pilot, backend, asking())
        assert isinstance(app.screen, LoginPrompt)


async def test_a_question_that_times_out_under_the_fingers_keeps_the_rest_of_the_password() -> None:
    async with showing(asking()) as (app, pilot, backend):
        await pilot.press(*"hun")
        await publish(app, pilot, backend, calm())
        assert "no longer asks" in text_of(app)
        await pilot.press(*"terKSq", "enter")
        await settled(pilot)

        assert isinstance(app.screen, MainScreen)
        assert backend.requests == [("answer", 7, None)]


async def test_login_goes_to_the_one_held_host_and_asks_which_when_there_are_several() -> None:
    async with showing(troubled()) as (app, pilot, backend):
        await pilot.press("L")
        await settled(pilot)
        assert backend.requests == [("login", "node:gpu-006")]

        held = {**troubled().sources, "node:gpu-007": source(7, health="down", phase="held", error="refused")}
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), sources=held))
        await pilot.press("L", "j", "enter")
        await settled(pilot)
        assert backend.requests[-1] == ("login", "node:gpu-007")


async def test_a_small_terminal_shows_one_pane_and_says_what_is_hidden() -> None:
    async with showing(calm(), (58, 14)) as (app, pilot, _):
        assert "also 2 GPUs  3 Disk  4 Log  5 Alerts  6 W&B  7 Queue" in text_of(app)

        await pilot.press("2")
        await settled(pilot)
        assert "2 GPUs" in text_of(app)


async def test_a_terminal_that_grows_gets_the_other_panes() -> None:
    async with showing(calm(), (58, 14)) as (app, pilot, _):
        await pilot.resize_terminal(200, 60)
        await settled(pilot)

        text = text_of(app)
        assert all(title in text for title in ("1 Runs", "2 GPUs", "3 Disk", "4 Log", "Run llm-70b"))


async def test_a_silent_engine_is_not_mistaken_for_a_calm_one() -> None:
    async with showing(calm()) as (app, pilot, _):
        app.clock.at += 20.0  # type: ignore[attr-defined]
        app._notice_silence()
        await settled(pilot)

        assert "NO UPDATE 20s" in text_of(app)


async def test_a_click_selects_the_row_and_a_double_click_opens_it() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.click(app.main.runs.lines, offset=(10, 2))
        await settled(pilot)
        assert app.main.runs.selected == "llm-70b"

        await pilot.click(app.main.runs.lines, offset=(10, 1), times=2)
        await settled(pilot)
        assert isinstance(app.screen, RunScreen)


async def test_a_click_on_the_footer_presses_its_key() -> None:
    async with showing(troubled()) as (app, pilot, _):
        column = next(start for key, start in app.main.foot.placed() if key.short == "Zoom")
        await pilot.click(app.main.foot, offset=(column, 0))
        await settled(pilot)

        assert app.main.zoomed


async def test_keys_typed_faster_than_the_screen_go_where_they_were_meant() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press("2", "enter")
        await settled(pilot)

        assert isinstance(app.screen, NodeScreen)
