"""Keys, focus, filters and failures on a running dashboard."""

from __future__ import annotations

import logging

import msgspec
import pytest
from textual import events

from tests.tui.dashboard import publish, showing
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.alerts import alarmed
from tests.tui.states.states import NOW, calm, empty, queued, troubled
from trainmon.lib import cell_width
from trainmon.model import State
from tui.modals.dialog import Columns
from tui.panes import Pane
from tui.screens.main import MainScreen


async def test_it_shows_runs_gpus_disks_and_the_log_of_the_worst_run() -> None:
    async with showing(troubled()) as (app, _, _backend):
        text = text_of(app)

        for words in ("1 Runs", "2 GPUs", "3 Disk", "4 Log llm-7b-a", "gpu-003", "/scratch", "ssh 6/8", "14:13:20Z"):
            assert words in text


async def test_the_log_and_the_reason_follow_the_selected_run() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("j")
        await at_rest(pilot)

        assert "4 Log abl-3" in text_of(app)
        assert "abl-3: diverged, the loss is nan" in text_of(app)


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
        await at_rest(pilot)
        assert "/hung  1 of 5" in text_of(app)

        await pilot.press("enter")
        await at_rest(pilot)
        assert app.main.runs.filter == "hung"
        assert app.main.runs.lines.has_focus

        await pilot.press("escape")
        await at_rest(pilot)
        assert app.main.runs.filter == ""


async def test_escape_takes_messages_away_that_cover_rows() -> None:
    async with showing(troubled(), size=(80, 24)) as (app, pilot, _):
        await pilot.press("r")
        await at_rest(pilot)
        assert "polling all sources" in text_of(app)

        await pilot.press("escape")
        await at_rest(pilot)
        assert "polling all sources" not in text_of(app)


async def test_keys_that_come_in_one_burst_are_handled_one_after_the_other() -> None:
    """A slow line delivers what was typed in one packet: none of it may reach what had the focus before."""
    async with showing(troubled(), size=(160, 50)) as (app, pilot, _):
        for key in "2/p":
            app.post_message(events.Key({"/": "slash"}.get(key, key), key))
        await at_rest(pilot)
        assert isinstance(app.screen, MainScreen)
        assert app.screen.find.value == "p"
        assert app.screen.pane is app.screen.gpus
        assert "PAUSED" not in text_of(app)


async def test_what_is_typed_before_the_filter_has_noticed_its_focus_stays() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await app.on_event(events.Key("slash", "/"))
        for letter in "tok":
            await app.on_event(events.Key(letter, letter))
        await at_rest(pilot)  # now it has
        await pilot.press("x")
        assert app.main.find.value == "tokx"


async def test_the_sort_picker_offers_the_panes_sort_orders_and_escape_changes_nothing() -> None:
    async with showing(troubled()) as (app, pilot, _):
        await pilot.press("s", "escape")
        await at_rest(pilot)
        assert app.main.runs.sort == "worst"

        await pilot.press("s", "j", "enter")
        await at_rest(pilot)
        assert app.main.runs.sort == "name"

        await pilot.press("s", "enter")
        await at_rest(pilot)
        assert (app.main.runs.sort, app.main.runs.lines.rows[0].key) == ("-name", "tok-test"), "the same again"


async def test_the_arrows_sort_by_the_next_column_and_a_comma_reverses() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        await pilot.press("right", *["right"] * 7)
        await at_rest(pilot)
        assert "sort last ↑" in text_of(app)

        await pilot.press("comma")
        await at_rest(pilot)
        assert "sort last ↓" in text_of(app)
        assert app.main.runs.sort == "-last"

        await pilot.press(*["left"] * 8, "comma")
        await at_rest(pilot)
        assert "sort worst reversed" in text_of(app)


async def test_a_filter_counts_what_it_finds_and_one_with_a_mistake_hides_nothing() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        await pilot.press("slash", *"status:hung !abl")
        await at_rest(pilot)
        assert "1 of 5" in text_of(app)

        await pilot.press(*" losss>2")
        await at_rest(pilot)
        assert len(app.main.runs.lines.rows) == 5
        assert 'filter not used: no field "losss"; did you mean loss>?' in text_of(app)


async def test_columns_are_chosen_and_ordered_in_a_dialog() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        await pilot.press("c")
        await at_rest(pilot)
        # job, nodes, step, loss, rate, saved, last, left, switch: without job and nodes, and step behind loss
        await pilot.press("space", "j", "space", "j", "right_square_bracket", "enter")
        await at_rest(pilot)
        assert app.main.runs.columns == ("loss", "step", "rate", "saved", "last", "left", "switch")
        (heads,) = [line for line in text_of(app).splitlines() if "RUN  " in line]
        assert heads[: heads.index("││")].split()[1:4] == ["RUN", "LOSS", "STEP"]
        assert app.main.arranged().columns == {"1": app.main.runs.columns}

        await pilot.press("3", "c", "escape")
        await at_rest(pilot)
        assert app.main.disk.columns == ()


async def test_tables_without_columns_of_their_own_get_those_that_are_chosen() -> None:
    state = msgspec.structs.replace(queued(), alerts=alarmed().alerts)
    async with showing(state, (200, 60)) as (app, pilot, _):
        chosen: list[tuple[Pane, tuple[str, ...], str]] = [
            (app.main.gpus, ("temp", "status"), "NODE TEMP STATUS"),
            (app.main.alerts, ("rule", "held"), "RULE HELD SUMMARY"),
            (app.main.queue, ("partition", "lost"), "NODE PARTITION LOST"),
        ]
        app.main.queue.view = "nodes"
        for pane, names, heads in chosen:
            await pilot.press(pane.NUMBER, "c")
            await at_rest(pilot)
            dialog = app.screen
            assert isinstance(dialog, Columns)
            assert not dialog.shown, "none of its fields has a usual column"
            for name in names:
                dialog.lines.move_to(name)
                await pilot.press("space")
            await pilot.press("enter")
            await at_rest(pilot)
            assert pane.columns == tuple(name for name in dialog.names if name in names)
            pane.set_columns(names)
            assert " ".join("".join(span.text for span in pane.heads.lines[0]).split()) == heads
            assert max(cell_width(row.text) for row in pane.lines.rows) <= pane.width
        assert app.main.arranged().columns == {"2": chosen[0][1], "5": chosen[1][1], "7 nodes": chosen[2][1]}
        assert not app.main.runs.columns
        assert any(" node-unreachable " in row.text for row in app.main.alerts.lines.rows), "rules are not cut"

        await pilot.press("v")
        await at_rest(pilot)
        assert not app.main.queue.columns, "the jobs have other columns than the nodes"


@pytest.mark.parametrize("size", [(40, 16), (60, 24), (80, 24), (200, 60)])
async def test_all_columns_in_any_order_fit_every_width(size: tuple[int, int]) -> None:
    state = msgspec.structs.replace(queued(), alerts=alarmed().alerts)
    async with showing(state, size) as (app, pilot, _):
        main = app.main
        for pane in (main.runs, main.gpus, main.disk, main.alerts, main.queue, main.queue):
            await pilot.press(pane.NUMBER)
            for names in ([field.name for field in pane.fields], [field.name for field in reversed(pane.fields)]):
                pane.set_columns(tuple(names))
                await at_rest(pilot)
                assert pane.lines.rows
                assert max(cell_width(row.text) for row in pane.lines.rows) <= pane.width
            main.queue.view = "nodes" if pane is main.queue else "all"


async def test_tab_completes_the_fields_of_a_filter_and_their_values() -> None:
    async with showing(troubled()) as (app, pilot, _):
        find = app.main.find
        await pilot.press("slash", *"sta", "tab")
        await at_rest(pilot)
        assert find.value == "status:"

        await pilot.press(*"h", "tab")
        await at_rest(pilot)
        assert find.value == "status:healthy"

        await pilot.press("tab", "tab")
        await at_rest(pilot)
        assert find.value == "status:h", "behind the last completion is what was typed"

        await pilot.press("tab", "tab", "enter")
        await at_rest(pilot)
        assert (app.main.runs.filter, len(app.main.runs.lines.rows)) == ("status:hung", 1)


async def test_a_completion_has_the_name_that_stands_above_the_column() -> None:
    names = {"sav": "ck>", "ck": "ck>", "ra": "tok/s>", "sw": "sw:", "nod": "n>", "na": "run:"}
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        for typed, completed in names.items():
            await pilot.press("slash", *typed, "tab")
            await at_rest(pilot)
            assert app.main.find.value == completed, typed
            await pilot.press("escape", "escape")
            await at_rest(pilot)


async def test_a_filter_knows_a_column_by_its_head_and_by_its_longer_name() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        found = {}
        for pane, queries in (("1", ("tok/s>1", "rate>1", "ck>0", "saved>0")), ("3", ("full-in<9d", "full<9d"))):
            await pilot.press(pane)
            for query in queries:
                await pilot.press("slash", *query, "enter")
                await at_rest(pilot)
                found[query] = [row.key for row in app.main.pane.lines.rows]
                assert 0 < len(found[query]) < len(app.main.pane.entries(app.main.pane.state)[0])
                assert "filter not used" not in text_of(app)
                await pilot.press("escape")
        assert found["tok/s>1"] == found["rate>1"]
        assert found["ck>0"] == found["saved>0"]
        assert found["full-in<9d"] == found["full<9d"]

        await pilot.press("1", "slash", *"logs/a:b")
        await at_rest(pilot)
        assert "filter not used" not in text_of(app), "a path is a text"


async def test_the_sorted_column_has_an_arrow_in_its_heading() -> None:
    state = msgspec.structs.replace(queued(), alerts=alarmed().alerts)
    async with showing(state, (200, 60)) as (app, _pilot, _):
        for pane, sort, head in (
            (app.main.runs, "loss", "LOSS↓"), (app.main.runs, "-name", "RUN↓"), (app.main.runs, "rate", "TOK/S↓"),
            (app.main.gpus, "mem", "mem max↓"), (app.main.gpus, "node", "NODE↑"), (app.main.disk, "full", "full in↑"),
            (app.main.disk, "name", "PATH↑"), (app.main.alerts, "held", "HELD↑"), (app.main.queue, "-nodes", "N↑"),
            (app.main.queue, "why", "WHY↑"),
        ):  # fmt: skip
            usual = "".join(span.text for span in pane.heads.lines[0])
            pane.set_sort(sort)
            heads = "".join(span.text for span in pane.heads.lines[0])
            assert f" {head}" in heads
            assert heads.count("↑") + heads.count("↓") == 1
            assert len(heads.rstrip("↑")) <= len(usual), "the others keep their places"
            pane.set_sort(pane.ORDER)


async def test_chosen_columns_have_no_metric_and_v_goes_on_to_the_users() -> None:
    async with showing(calm(), (120, 40)) as (app, pilot, _):
        await pilot.press("2")
        assert "util %" in text_of(app)

        app.main.gpus.set_columns(("temp", "power"))
        await at_rest(pilot)
        assert "util %" not in text_of(app)
        assert "temp °C" not in text_of(app)
        await pilot.press("v")
        await at_rest(pilot)
        assert (app.main.gpus.view, app.main.gpus.columns) == ("users", ())
        await pilot.press("v", "v")
        assert (app.main.gpus.view, app.main.gpus.columns) == ("nodes", ("temp", "power"))


async def test_a_pane_that_raises_says_so_with_its_age_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async with showing(calm()) as (app, pilot, backend):

        def broken(state: State, width: int) -> None:
            message = "no such disk"
            raise KeyError(message)

        app.main.disk.draw = app.main.log_pane.draw = broken  # type: ignore[method-assign]
        with caplog.at_level(logging.CRITICAL):
            await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 1))
            await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 13))

        text = text_of(app)
        assert text.count("failed 12s ago") == 2
        assert text.count("KeyError: 'no such disk'") == 2, "also in the log, in place of its lines"
        assert "HOT" in text

        del app.main.log_pane.draw
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 15))
        assert text_of(app).count("KeyError: 'no such disk'") == 1
        assert "iteration" in text_of(app)


async def test_pause_holds_the_screen_and_says_so_and_letting_go_shows_the_latest() -> None:
    async with showing(calm()) as (app, pilot, backend):
        await pilot.press("p")
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), at=NOW + 5))
        assert "PAUSED" in text_of(app)
        assert "llm-7b-a" not in text_of(app)

        await pilot.press("p")
        await at_rest(pilot)
        assert "PAUSED" not in text_of(app)
        assert "llm-7b-a" in text_of(app)


async def test_copy_puts_the_name_on_the_clipboard() -> None:
    async with showing(calm()) as (app, pilot, _):
        await pilot.press("y")
        await at_rest(pilot)

        assert app.clipboard == "llm-70b"


async def test_refresh_sends_one_request_to_the_backend_per_press() -> None:
    async with showing(calm()) as (_, pilot, backend):
        await pilot.press("r")
        await at_rest(pilot)

        assert backend.requests == [("refresh",)]


async def test_an_empty_cluster_says_how_to_name_a_run() -> None:
    async with showing(empty()) as (app, _, _backend):
        assert "[[run]]" in text_of(app)


async def test_a_small_terminal_shows_one_pane_and_says_what_is_hidden() -> None:
    async with showing(calm(), (58, 14)) as (app, pilot, _):
        assert "also 2 GPUs  3 Disk  4 Log  5 Alerts  6 Charts  7 Queue" in text_of(app)

        await pilot.press("2")
        await at_rest(pilot)
        assert "2 GPUs" in text_of(app)


async def test_a_terminal_that_grows_gets_the_other_panes() -> None:
    async with showing(calm(), (58, 14)) as (app, pilot, _):
        await pilot.resize_terminal(200, 60)
        await at_rest(pilot)

        text = text_of(app)
        assert all(title in text for title in ("1 Runs", "2 GPUs", "3 Disk", "4 Log", "Run llm-70b"))


async def test_a_silent_engine_is_not_mistaken_for_a_calm_one() -> None:
    async with showing(calm()) as (app, pilot, _):
        app.clock.at += 20.0  # type: ignore[attr-defined]
        app._notice_silence()
        await at_rest(pilot)

        assert "NO UPDATE 20s" in text_of(app)
