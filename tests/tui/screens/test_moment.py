"""`o`: from an alert or a spike to the run at that time, its charts and its log; and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.tui.dashboard import showing
from tests.tui.log_files import files, until_shown
from tests.tui.screen_text import at_rest, settled
from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.states import NOW, calm, iterations, log, run
from tests.tui.states.wandb_runs import NAME, filled, watched
from trainmon.model import LossTrouble, Points, RunMemory, State
from tui.screens.details import MomentScreen, RunScreen
from tui.screens.main import MainScreen
from tui.views.alert_detail import line_of_step, log_line, moment_of_run


def spiking() -> State:
    """A run whose loss rose at step 12,700, 180 steps before the end of its log."""
    one = run("a", log=log(iterations(1_000, 12_880)))
    spike = alert(rule="loss-spike", severity="warning", phase="pending", subject="run:a", run="a", since=NOW - 1_080.0,
                  summary="the loss of a rose to 5.51 at step 12,700 (usually 2 to 2.06) 18m ago")  # fmt: skip
    return with_alerts(spike, base=replace(calm(), runs={"a": one, "b": run("b")}))


@pytest.mark.parametrize("keys", [("o",), ("5", "o"), ("5", "enter", "o")])
@pytest.mark.parametrize("size", [(80, 24), pytest.param((120, 40), marks=pytest.mark.slow)])
async def test_one_key_leads_from_the_alert_to_the_log_of_its_time_and_back(
    keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    async with showing(spiking(), size) as (app, pilot, _):
        for key in keys:
            await pilot.press(key)
            await at_rest(pilot)
        assert isinstance(app.screen, MomentScreen)
        shown = await settled(pilot)
        assert "loss-spike: the loss of a rose to 5.51 at step 12,700" in shown
        assert "12700" in shown
        assert "12880" not in shown, "not the end of the log"

        await pilot.press("enter")
        await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)
        for _ in range(3):
            await pilot.press("escape")
            await at_rest(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_its_charts_show_the_hour_around_that_time() -> None:
    state = watched()
    one = replace(state.runs[NAME], log=log(iterations()))
    fired = alert(rule="slow-throughput", subject=f"run:{NAME}", run=NAME, since=NOW - 7_200.0)
    state = with_alerts(fired, base=replace(state, runs={NAME: one}))
    async with showing(state, (120, 50), filled(state)) as (app, pilot, _):
        await pilot.press("o")
        shown = await settled(pilot)
        screen = app.screen
        assert isinstance(screen, MomentScreen)
        assert "by time" in shown
        assert (screen.charts.view.width, screen.charts.view.end) == (3_600.0, NOW - 5_400.0)


async def test_a_spike_in_a_chart_leads_to_its_time_and_the_same_key_back() -> None:
    """No rule knows this metric: its point that is farthest from the others is meant."""
    state = watched()
    one = replace(state.runs[NAME], log=log(iterations(1_000, 12_880)))
    state = replace(state, runs={NAME: one})
    backend = filled(state)
    path = "team/project/id3"
    points = Points([12_700.0, 12_701.0], [NOW - 740.0, NOW - 736.0], [900.0, 0.3])
    backend.curves.grow(path, {"train/grad_norm": points}, fresh=False)
    async with showing(state, (120, 50), backend) as (app, pilot, _):
        await pilot.press("6", "j", "o")
        shown = await settled(pilot)
        screen = app.screen
        assert isinstance(screen, MomentScreen)
        assert "12m ago: train/grad_norm was 900 at step 12,700, the farthest from its median of" in shown
        assert "▼ this moment" in shown
        assert screen.charts.lines.cursor_key == "train/grad_norm"
        assert screen.charts.view.end is None, "the hour that ends now: nothing is known of the next one"
        number = screen.log_pane.view.hit
        assert number is not None
        assert "12700" in screen.log_pane.view.text[number]
        await pilot.press("o")
        await at_rest(pilot)
        assert isinstance(app.screen, MainScreen)


async def test_a_log_that_has_lost_the_lines_of_that_time_says_so() -> None:
    early = alert(rule="loss-spike", subject="run:a", run="a", since=NOW - 36_000.0,
                  summary="the loss of a rose to 5.51 at step 4,000, 10h ago")  # fmt: skip
    one = run("a", log=log(iterations(1_000, 12_880)))
    async with showing(with_alerts(early, base=replace(calm(), runs={"a": one}))) as (_, pilot, _backend):
        await pilot.press("o")
        shown = await settled(pilot)
        assert "no line of that time is among the last 1,000: this is the end" in shown
        assert "12880" in shown


async def test_lines_that_the_dashboard_no_longer_has_are_read_from_the_file(tmp_path: Path) -> None:
    early = alert(rule="loss-spike", subject="run:a", run="a", since=NOW - 36_000.0,
                  evidence=("iteration 12880 spiked",),
                  summary="the loss of a rose to 5.51 at step 4,000, 10h ago")  # fmt: skip
    one = run("a", log=log(iterations(1_000, 12_880)))
    state = with_alerts(early, base=replace(calm(), runs={"a": one}))
    text = "".join(f"{line}\n" for line in iterations(12_880, 12_880))
    async with files(state, text, tmp_path) as backend, showing(state, (120, 40), backend) as (app, pilot, _):
        await pilot.press("o")
        await until_shown(pilot, "4000/")
        assert isinstance(app.screen, MomentScreen)
        view = app.screen.log_pane.view
        assert view.hit is not None
        assert "    4000/" in view.text[view.hit]
        shown = await settled(pilot)
        assert "at 30.9% of" in shown
        assert "no line of that time" not in shown


@pytest.mark.parametrize(
    ("lines", "step", "is_earlier", "found"),
    [
        (
            [
                "[step 10] loss=2.21 | lr=2.60e-04",
                "[step 20] loss=2.21 | lr=2.60e-04",
                "[step 30] loss=2.21 | lr=2.60e-04",
            ],
            22,
            False,
            1,
        ),
        (
            [
                "[step 10] loss=2.21 | lr=2.60e-04",
                "[step 20] loss=2.21 | lr=2.60e-04",
                "[step 10] loss=2.21 | lr=2.60e-04",
            ],
            10,
            False,
            2,
        ),
        (
            [
                "[step 10] loss=2.21 | lr=2.60e-04",
                "[step 20] loss=2.21 | lr=2.60e-04",
                "[step 10] loss=2.21 | lr=2.60e-04",
            ],
            10,
            True,
            0,
        ),
        (["[step 1000] loss=2.21 | lr=2.60e-04", "[step 1010] loss=2.21 | lr=2.60e-04"], 900, False, None),
        (["at batch 12,700 of all", "at batch 12,750 of all", "at batch 12,750 of all"], 12_730, False, 2),
        (["12:15:03 hello", "12:16:04 the 15 of us"], 15, False, 1),
        (["18:15:03 hello"], 15, False, None),
    ],
)
def test_the_line_of_a_step(lines: list[str], step: int, is_earlier: bool, found: int | None) -> None:
    assert line_of_step(log(tuple(lines)), step, is_earlier=is_earlier) == found


async def test_a_run_without_an_alert_says_that_there_is_no_moment() -> None:
    async with showing(calm()) as (_, pilot, _backend):
        await pilot.press("o")
        assert "no alert or spike of a run is selected" in await settled(pilot)


def test_a_spike_without_an_alert_has_its_step() -> None:
    trouble = LossTrouble(state="spike", key="loss", value=5.51, step=12_700, at=NOW - 60.0)
    one = run("a", log=log(iterations(1_000, 12_880)), memory=RunMemory(trouble=trouble))
    moment = moment_of_run(one, calm())
    assert moment is not None
    number = log_line(moment, one)
    assert number is not None
    assert one.log is not None
    assert "12700" in one.log.lines[number - one.log.first]


def test_an_alert_that_names_no_step_is_found_by_the_usual_time_of_a_step() -> None:
    one = run("a", log=log(iterations(1_000, 12_880)))
    progress = one.progress
    assert progress.step_time_s
    assert progress.at
    since = progress.at - 100 * progress.step_time_s
    moment = moment_of_run(one, with_alerts(alert(subject="run:a", run="a", since=since, summary="a is slow")))
    assert moment is None, "the run is not watched in that State"
    state = with_alerts(
        alert(subject="run:a", run="a", since=since, summary="a is slow"), base=replace(calm(), runs={"a": one})
    )
    moment = moment_of_run(one, state)
    assert moment is not None
    assert one.log is not None
    number = log_line(moment, one)
    assert number is not None
    assert "12780" in one.log.lines[number - one.log.first]
