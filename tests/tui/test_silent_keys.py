"""Every key answers: one that does nothing here says why, and where it does something."""

from __future__ import annotations

import pytest

from tests.tui.dashboard import showing
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.states import calm, empty, troubled
from trainmon.model import State


async def test_a_key_that_does_nothing_says_why() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        for keys, words in (
            ("v", "v does nothing here: it works in GPUs"),
            ("Q", "Q does nothing here; ? lists the keys"),
            ("ctrl+x", "ctrl+x does nothing here; ? lists the keys"),
            ("f5", "f5 does nothing here; ? lists the keys"),
            ("at", "@ does nothing here; ? lists the keys"),
            ("enter right", "→ does nothing here: it works in Runs, GPUs, Disk, Alerts, Queue"),
            ("escape 3 K", "K does nothing here: it works in Runs, Queue, a run, a job"),
            ("backspace", "Backspace does nothing here: it works in Log format"),
            ("y X", "X does nothing here: it works in GPUs, Queue, a node"),
            ("4 n", "no search is active; / searches"),
            ("slash z q enter n", "no other match of “zq” that way"),
            ("w right", "long lines are wrapped; w cuts them"),
        ):
            app.clear_notifications()
            await pilot.press(*keys.split())
            await at_rest(pilot)
            assert words in [toast.message[: len(words)] for toast in app._notifications], keys


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("x Q", "Q does nothing in this dialog; Esc closes it"),
        ("s 1", "1 does nothing in this dialog; Esc closes it"),
        ("S Q", "ignored: the dialog was not ready yet"),
    ],
)
async def test_a_key_that_does_nothing_in_a_dialog_says_why_in_its_frame(keys: str, words: str) -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        for key in keys.split():
            await pilot.press(key)
            await at_rest(pilot)
        assert words in text_of(app)
        assert not app._notifications


async def test_a_key_says_that_there_is_nothing_for_it() -> None:
    async with showing(empty(), (120, 40)) as (app, pilot, _):
        for keys, words in (
            ("l", "no run is selected"),
            ("y", "nothing is selected to copy"),
            ("space", "nothing here can be marked"),
            ("6 v", "no charts are shown"),
            ("plus", "no charts are shown"),
            ("e", "no charts are shown"),
        ):
            app.clear_notifications()
            await pilot.press(*keys.split())
            await at_rest(pilot)
            assert words in [toast.message for toast in app._notifications], keys


@pytest.mark.parametrize("state", [calm(), troubled()], ids=["calm", "troubled"])
@pytest.mark.parametrize(
    ("size", "title"),
    [
        ((80, 24), "1 Runs ─ 2 GPUs  3 Disk  5 Alerts  6 Charts  7 Queue ─"),
        ((120, 40), "1 Runs ─ 6 Charts  7 Queue ─"),
    ],
)
async def test_the_panes_that_do_not_fit_are_named_with_their_keys(
    state: State, size: tuple[int, int], title: str
) -> None:
    async with showing(state, size) as (app, pilot, _):
        assert title in text_of(app)
        await pilot.press("z")
        await at_rest(pilot)
        assert title not in text_of(app)


async def test_the_help_names_the_pane_of_each_key_and_can_be_searched() -> None:
    async with showing(calm(), (80, 24)) as (app, pilot, _):
        await pilot.press("question_mark", *"/wrap")
        await at_rest(pilot)
        shown = [line.strip(" │\n") for line in text_of(app).splitlines()]
        assert [line for line in shown if "In " in line or "wrap long" in line] == [
            "In Log",
            "w           wrap long lines, or cut them",
        ]

        await pilot.press("escape", *"/no such key")
        await at_rest(pilot)
        assert "Nothing matches “no such key”." in text_of(app)

        await pilot.press("enter", "escape")
        await at_rest(pilot)
        assert "filter the rows" in text_of(app)
        await pilot.press("escape")
        await at_rest(pilot)
        assert app.screen is app.main
