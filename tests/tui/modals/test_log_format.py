"""The dialog that shows what is read in a log, and corrects it."""

from __future__ import annotations

import tomllib

import pytest

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, settled
from tests.tui.states.states import log, run, state
from trainmon.analysis.log_formats import NAMES, cells, custom_format, named, report
from trainmon.model import Progress
from tui.modals import LogFormat
from tui.modals.log_format import FIELDS, line_rows

KNOWN = [f"iter {n}: loss 3.{99 - n}, time 31{n}.5ms, lr 1e-4" for n in range(10, 30)]
NAMELESS = [*(f"10:00:{n} [rank0] {n}0 : 2.{99 - n} {n}ms" for n in range(10, 30)), "saved the checkpoint"]


def rows_of(text: str, label: str) -> str:
    """What the dialog says beside a label."""
    return next(line for line in text.splitlines() if f"│ {label} " in line).strip(" │").removeprefix(label).strip()


async def test_it_shows_the_fields_of_the_newest_line_and_what_the_format_reads() -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=(100, 30)) as pilot:
        app.push_screen(LogFormat("llm", report(KNOWN)))
        text = await settled(pilot)
        assert "Log format of llm: learned" in text
        assert "›         29  iter 29: loss 3.70, time 3129.5ms, lr 1e-4" in text
        assert "     ^^ step" in text
        assert rows_of(text, "fields") == "step=29  loss=3.70  step_time_ms=3129.5  learning_rate=1e-4"
        assert rows_of(text, "template") == "iter {step}: loss {loss}, time {step_time_ms}ms, lr {learning_rate}"
        assert rows_of(text, "reads") == "20 of 20 lines, steps 10–29"
        await pilot.press("k", "right", "x")
        text = await settled(pilot)
        assert rows_of(text, "fields") == "step=28  step_time_ms=3128.5  learning_rate=1e-4"
        assert "loss {}, time {step_time_ms}ms" in text


@pytest.mark.parametrize("size", [(200, 60), (80, 24), (50, 14)])
async def test_the_newest_line_and_its_result_are_in_sight_at_every_size(size: tuple[int, int]) -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=size) as pilot:
        app.push_screen(LogFormat("llm", report(KNOWN)))
        text = await settled(pilot)
        assert "›         29  iter 29" in text
        assert rows_of(text, "reads") == "20 of 20 lines, steps 10–29"


async def test_a_key_that_comes_while_it_is_laid_out_again_is_not_taken_back() -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=(80, 24)) as pilot:
        dialog = LogFormat("llm", report(KNOWN))
        app.push_screen(dialog)
        await settled(pilot)
        dialog.fit()  # as on the first frame, and when the terminal gets another size
        dialog.lines.action_move(-1)  # a key before the next frame
        assert "›         28  iter 28" in await settled(pilot)


@pytest.mark.parametrize("size", [(20, 6), (12, 4), (5, 3)])
async def test_a_terminal_without_room_for_it_ends_nothing(size: tuple[int, int]) -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=size) as pilot:
        app.push_screen(LogFormat("llm", report(KNOWN)))
        await settled(pilot)
        await pilot.resize_terminal(100, 30)
        assert rows_of(await settled(pilot), "reads") == "20 of 20 lines, steps 10–29"


async def test_no_template_is_offered_where_several_lines_make_one_step() -> None:
    keras = [
        text for epoch in (1, 2) for text in (f"Epoch {epoch}/5", f"100/100 - 3s - 30ms/step - loss: 0.{9 - epoch}")
    ]
    app = ActionApp(FakeBackend())
    async with running(app, size=(140, 30)) as pilot:
        app.push_screen(LogFormat("keras", report(keras)))
        text = await settled(pilot)
        assert "several lines make one step here, and a template reads one line: no format is needed" in text
        await pilot.press("y")
        assert "[[log_format]]" not in app.clipboard


async def test_naming_numbers_of_an_unknown_line_makes_a_format_to_copy() -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=(100, 30)) as pilot:
        app.push_screen(LogFormat("own", report(NAMELESS)))
        text = await settled(pilot)
        assert "Log format of own: not recognised" in text
        assert rows_of(text, "fields") == "none"
        assert rows_of(text, "suggested") == "{step} : {} {step_time_ms}ms"
        await pilot.press("k", "right", "l")
        text = await settled(pilot)
        assert rows_of(text, "fields") == "step=290  loss=2.70  step_time_ms=29"
        assert rows_of(text, "template") == "{step} : {loss} {step_time_ms}ms"
        assert rows_of(text, "reads") == "20 of 21 lines, steps 100–290"
        await pilot.press("y")
        await at_rest(pilot)
        block = tomllib.loads(app.clipboard)["log_format"][0]
        found = custom_format(**block).parse(NAMELESS[0])
        assert found is not None
        assert (found.step, found.loss, found.step_time_s) == (100, 2.89, 0.01)
        assert app.toasts[-1][0] == "copied"
        assert app.toasts[-1][1].endswith("paste it at the end of trainmon.toml and restart trainmon-tui")


async def test_a_format_of_the_config_is_shown_and_its_block_replaced() -> None:
    own = custom_format("llm", pattern=r"iter (?P<step>\d+): loss (?P<loss>\S+),")
    app = ActionApp(FakeBackend())
    async with running(app, size=(100, 30)) as pilot:
        app.push_screen(LogFormat("llm", report(KNOWN, (own,))))
        text = await settled(pilot)
        assert "Log format of llm: llm" in text
        assert rows_of(text, "fields") == "step=29  loss=3.70"
        await pilot.press("c")
        await at_rest(pilot)
        assert tomllib.loads(app.clipboard)["log_format"] == [{"name": "llm", "template": "iter {step}: loss {loss}"}]
        assert "replace the block of that name with it in trainmon.toml" in app.toasts[-1][1]


async def test_enter_lists_all_fields_and_a_field_is_of_one_number_only() -> None:
    app = ActionApp(FakeBackend())
    async with running(app, size=(100, 30)) as pilot:
        app.push_screen(LogFormat("own", report(NAMELESS[:-1])))
        await at_rest(pilot)
        await pilot.press("right", "enter")
        assert "What is 2.70?" in await settled(pilot)
        await pilot.press("g", "j", "j")
        assert "› loss           the training loss" in await settled(pilot)
        await pilot.press("enter")
        assert rows_of(await settled(pilot), "fields") == "step=290  loss=2.70  step_time_ms=29"
        await pilot.press("s")
        assert rows_of(await settled(pilot), "fields") == "step=2.70  step_time_ms=29"
        await pilot.press("x")
        text = await settled(pilot)
        assert rows_of(text, "reads") == "no step: go to its number with ← → and press s"
        await pilot.press("y")
        await at_rest(pilot)
        assert app.clipboard == ""
        assert app.toasts[-1][1:] == ("no step: go to its number with ← → and press s", "warning")


async def test_i_opens_it_in_the_log_and_in_the_screen_of_a_run() -> None:
    known = run("own", log=log(tuple(KNOWN)), progress=Progress())
    app = dashboard(FakeBackend(state(runs=(known, run("new", log=None)))))
    async with running(app, size=(120, 40)) as pilot:
        for keys in (("4", "i"), ("l", "i"), ("enter", "i")):
            await at_rest(pilot)
            app.main.runs.lines.move_to("own")
            for key in keys:
                await pilot.press(key)
                text = await settled(pilot)
            assert "Log format of own: learned" in text
            await pilot.press("escape")
            await at_rest(pilot)
            await pilot.press("escape", "1")
        app.main.runs.lines.move_to("new")
        await at_rest(pilot)
        await pilot.press("4", "i")
        await at_rest(pilot)
        assert "the log of new has no lines yet" in [one.message for one in app._notifications]


def test_the_list_has_every_field_of_a_format() -> None:
    assert FIELDS.keys() == set(NAMES)


def test_the_selected_number_is_in_sight_and_marked_in_a_long_line() -> None:
    line = "x" * 95 + " 12345 loss 3.5"
    found = named(cells(line), 0, "step")
    texts = ["".join(span.text for span in row) for row in line_rows(line, found, 1, 40, 2)]
    assert texts == ["x" * 40, "x" * 15 + " 12345 loss 3.5", f"{'^^^':>30} no field"]
    texts = [
        "".join(span.text for span in row) for row in line_rows("a" * 30 + " 3.5", cells(" " * 30 + " 3.5"), 0, 36, 2)
    ]
    assert texts[1] == f"{'no field ^^^':>34}"
