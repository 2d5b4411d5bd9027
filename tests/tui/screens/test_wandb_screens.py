"""W&B on a running dashboard: the pane at every size, the run's screen, the browser, the samples, the palette."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running, thing_shown
from tests.tui.screen_text import arrive, at_rest, dashboard, settled, text_of
from tests.tui.states import wandb as wandb_states
from tests.tui.states.plans import planning
from tests.tui.states.wandb_runs import NAME
from trainmon.model import State
from tui.app import Dashboard
from tui.modals import TextPrompt
from tui.screens.details import RunScreen
from tui.style import Link, width_of

PAGE = "https://wandb.ai/team/project/runs/id3"


@asynccontextmanager
async def showing(
    state: State, size: tuple[int, int] = (120, 40), *keys: str
) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = planning(state)
    app = dashboard(backend)
    async with running(app, size=size, notifications=True) as pilot:
        await at_rest(pilot)
        if keys:
            await pilot.press(*keys)
            await at_rest(pilot)
        yield app, pilot, backend


async def test_six_takes_the_lower_half_or_the_logs_place_and_again_the_whole_screen() -> None:
    """And what was chosen outlives a resize: the focus, and how the charts are looked at."""
    async with showing(wandb_states.wandb(), (80, 24), "6", "e") as (app, pilot, backend):
        assert "1 Runs" in text_of(app)
        assert "6 Charts video-2b" in text_of(app)
        assert "train/loss" in text_of(app)

        await pilot.press("6")
        assert "1 Runs" not in await settled(pilot)

        await pilot.press("escape")
        await pilot.resize_terminal(120, 40)
        text = await settled(pilot)
        assert all(title in text for title in ("1 Runs", "2 GPUs", "3 Disk", "6 Charts"))
        assert "4 Log video-2b" not in text
        assert app.main.current == "6"
        assert app.main.wandb.view.log

        await pilot.press("slash", "s", "K", "x", "escape", "s", "K", "x")
        assert app.screen is app.main, "nothing acts among the charts"
        assert backend.requests == []

        await pilot.press("4")
        assert "6 Charts video-2b" not in await settled(pilot)


async def test_a_wide_screen_has_the_charts_beside_the_log_and_tab_goes_through_them_once() -> None:
    async with showing(wandb_states.wandb(), (180, 40)) as (app, pilot, _):
        titles = ("1 Runs", "2 GPUs", "3 Disk", "4 Log", "6 Charts video-2b", "Run video-2b")
        assert all(title in text_of(app) for title in titles)

        visited = []
        for _step in range(7):
            visited.append(app.main.current)
            await pilot.press("tab")
            await pilot.pause()
        assert visited == ["1", "2", "6", "5", "3", "4", "4"], "each once; the details of the run have no number"
        assert app.main.current == "1"

        await pilot.press("j")
        assert "vlm-7b has no W&B project" in await settled(pilot), "the charts follow the selected run"


async def test_rows_that_get_a_scroll_bar_are_laid_out_beside_it() -> None:
    async with showing(wandb_states.wandb(), (180, 40)) as (app, _, _backend):
        lines = app.main.run_pane.lines
        log = next(row for row in lines.rows if row.text.startswith("log"))

        assert lines.show_vertical_scrollbar
        assert width_of(log.spans) == lines.row_width
        assert log.text.endswith("llm-70b/slurm-418190.out")


# ---- its page ------------------------------------------------------------------------------------------------------


async def test_b_shows_the_address_where_no_browser_would_be_seen_and_y_copies_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22")
    async with showing(wandb_states.wandb(), (100, 30)) as (app, pilot, _):
        for keys in (("b",), ("6", "b"), ("1", "enter", "b")):
            await pilot.press("escape", *keys)
            text = await settled(pilot)
            assert "W&B page" in text, keys
            assert PAGE in text, keys

        await pilot.press("escape", "6", "y")
        assert app.clipboard == PAGE

        await pilot.press("escape", "2", "b")
        assert "its page" not in await settled(pilot), "among the GPUs it means nothing"

        await pilot.press("1", "j", "b")
        assert "W&B has reported no page for this run" in await settled(pilot)


async def test_b_opens_a_browser_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = tmp_path / "asked"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {request}.part && /bin/mv {request}.part {request}\n')
    browser.chmod(0o700)
    for name in ("SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    async with showing(wandb_states.wandb(), (80, 24), "6", "b") as (app, pilot, backend):
        assert "opening in your browser" in text_of(app)
        for _ in range(500):
            if request.exists():
                break
            await pilot.pause(0.02)
        assert request.read_text() == PAGE

        request.unlink()
        app.clock.at += 2.0  # type: ignore[attr-defined]
        backend.publish(wandb_states.wandb(runs=(wandb_states.current(url="file:///etc/passwd"),)))
        await at_rest(pilot)
        await pilot.press("b")
        assert "file:///etc/passwd" in await settled(pilot), "what is no page of the web is only shown"
        assert not request.exists()


# ---- the run's screen ----------------------------------------------------------------------------------------------


async def test_the_runs_screen_leads_to_its_charts_and_back() -> None:
    async with showing(wandb_states.wandb(), (100, 40), "enter") as (app, pilot, _):
        assert isinstance(app.screen, RunScreen)
        assert "d Samples" in text_of(app)
        assert "b Browser" in text_of(app)

        app.screen.pane.lines.move_to(f">wandb:{NAME}")
        await pilot.press("enter")
        assert "train/grad_norm" in await settled(pilot)
        assert thing_shown(app) == "wandb"

        await pilot.press("e", "escape")
        assert isinstance(app.screen, RunScreen)

        await pilot.press("escape", "j", "enter")
        assert "d Samples" not in await settled(pilot), "that run has no W&B project"
        await pilot.press("d")
        assert isinstance(app.screen, RunScreen)


async def test_samples_are_fetched_into_the_folder_that_was_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Downloads").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    async with showing(wandb_states.wandb(), (100, 40), "enter", "d") as (app, pilot, backend):
        assert isinstance(app.screen, TextPrompt)
        assert app.screen.field.value == str(tmp_path / "Downloads" / "trainmon-tui" / NAME)
        assert "Fetch 3 samples of video-2b" in text_of(app)

        await pilot.press("escape", "d", "ctrl+u", "enter")
        assert isinstance(app.screen, RunScreen)
        assert backend.requests == [], "no folder, no fetching"

        await pilot.press("d", "backspace", "c", "enter")
        text = await settled(pilot)
        into = str(tmp_path / "Downloads" / "trainmon-tui" / "video-2c")
        assert backend.requests == [("save samples", NAME, into)]
        assert "fetching into" in text

        answer = threading.Thread(target=backend.saving[0], args=("3 samples are in it",))
        answer.start()
        answer.join(60.0)
        assert "3 samples are in it" in await settled(pilot)

        app.clock.at += 2.0  # type: ignore[attr-defined]
        backend.publish(wandb_states.wandb(samples=()))
        await pilot.press("escape", "enter", "d")
        assert "video-2b has logged no images or videos" in await settled(pilot)


async def test_the_charts_on_a_screen_of_their_own_have_the_marked_runs_too() -> None:
    async with showing(wandb_states.wandb(), (80, 24), "space") as (app, pilot, _):
        marked = app.main.runs.lines.marks()
        app.open(Link("wandb", NAME))
        await at_rest(pilot)

        assert marked
        assert app.screen.pane.marked() == marked  # type: ignore[attr-defined]


async def test_the_palette_opens_the_charts_of_a_run_by_name() -> None:
    async with showing(wandb_states.wandb(), (80, 24), "2") as (app, pilot, _):
        arrive(app, "colon", *"charts of", "enter")
        await at_rest(pilot)

        assert thing_shown(app) == "wandb"
        assert app.screen.pane.run == NAME
