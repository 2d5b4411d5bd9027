"""The palette: what is typed, what Enter takes, and keys that arrive all at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from textual import events
from textual.pilot import Pilot

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running, thing_shown
from tests.tui.screen_text import arrive, at_rest, dashboard, settled, text_of
from tests.tui.states import plans
from tests.tui.terminal import Terminal
from trainmon.model import State
from tui.app import Dashboard
from tui.modals.menu import CommandPalette
from tui.views.actions import Command
from tui.widgets import GUTTER

# ---- the dialog alone ----

COMMANDS = (
    Command("pane", "Disk", ("disk",), "", "3"),
    Command("key", "keep the rows as they are", ("keep",), "", "f"),
    Command("node", "gpu-001", ("gpu-001",), ""),
    Command("node", "gpu-002", ("gpu-002",), ""),
    Command("act", "kill: drop the kill switch", ("kill",), "", "K"),
)


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[CommandPalette, Pilot[None], list[str | None]]]:
    """The palette over nothing; what it ended with is in the list."""
    app, taken = ActionApp(FakeBackend()), list[str | None]()
    async with running(app, size=(80, 24)) as pilot:
        palette = CommandPalette(COMMANDS)
        app.push_screen(palette, lambda chosen: taken.append(chosen and chosen.text))
        await at_rest(pilot)
        yield palette, pilot, taken


async def test_a_word_that_nothing_is_called_says_so_and_enter_does_nothing() -> None:
    async with asking() as (palette, pilot, taken):
        await pilot.press(*"zzz")
        assert "no match for “zzz”" in await settled(pilot)
        await pilot.press("enter", "down", "enter")
        await at_rest(pilot)
        assert (palette.is_current, taken) == (True, [])

        await pilot.press("escape")
        await at_rest(pilot)
        assert taken == [None]


async def test_enter_takes_nothing_before_anything_is_typed_or_chosen() -> None:
    async with asking() as (palette, pilot, taken):
        await pilot.press("enter", "space", "enter")
        await at_rest(pilot)
        assert (palette.is_current, taken) == (True, [])

        await pilot.press("down", "down", "enter")
        await at_rest(pilot)
        assert taken == ["keep the rows as they are"]


async def test_every_letter_puts_the_cursor_on_the_best_again() -> None:
    async with asking() as (_, pilot, taken):
        await pilot.press("k", "end", "e", "backspace", "enter")
        await at_rest(pilot)

        assert taken == ["keep the rows as they are"]


async def test_what_is_typed_can_be_taken_back_and_pasted() -> None:
    async with asking() as (palette, pilot, _):
        await pilot.press(*"kilo", "backspace", *" dis", "ctrl+w")
        await at_rest(pilot)
        assert palette.typed == "kil"

        await pilot.press("ctrl+u")
        pilot.app.post_message(events.Paste("di\nsk"))
        assert ": di sk_" in await settled(pilot)


async def test_what_opens_a_plan_is_marked() -> None:
    async with asking() as (_, pilot, _):
        await pilot.press("k")
        kept, kill = (line for line in (await settled(pilot)).splitlines() if "keep" in line or "kill:" in line)

        assert "shows its plan" in kill
        assert "plan" not in kept


async def test_one_click_chooses_a_row_and_two_take_it() -> None:
    async with asking() as (palette, pilot, taken):
        await pilot.press(*"gpu")
        await at_rest(pilot)
        await pilot.click(palette.lines, offset=(GUTTER + 2, 1))
        await at_rest(pilot)
        assert (palette.lines.cursor_key, taken) == (palette.lines.rows[1].key, [])

        await pilot.click(palette.lines, offset=(GUTTER + 2, 1), times=2)
        await at_rest(pilot)
        assert taken == ["gpu-002"]


# ---- on the dashboard ----


@asynccontextmanager
async def showing(state: State | None = None) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = FakeBackend(state or plans.with_jobs())
    backend.plan = plans.kills
    app = dashboard(backend)
    async with running(app, size=(120, 40), notifications=True) as pilot:
        await at_rest(pilot)
        yield app, pilot, backend


def planned(backend: FakeBackend) -> Sequence[object]:
    return [what[1:] for what in backend.requests if what[0] == "prepare"]


async def test_a_word_and_enter_lead_to_its_pane_from_every_screen_also_in_one_packet() -> None:
    async with showing() as (app, pilot, backend):
        for before, word, pane in (
            ((), "disk", "3"), ((), "jobs", "7"), (("2", "enter"), "logs", "4"), (("z",), "nodes", "2"),
            (("1", "enter"), "metrics", "6"), (("l",), "alerts", "5"),
        ):  # fmt: skip
            await pilot.press(*before)
            arrive(app, "colon", *word, "enter", "enter")
            await at_rest(pilot)

            assert (app.screen, app.main.current) == (app.main, pane), word
            assert app.focused is not None
            assert app.main.panes[pane] in app.focused.ancestors, word
        assert planned(backend) == []


async def test_theme_lets_choose_the_colours_and_a_theme_is_taken_by_its_name() -> None:
    async with showing() as (app, pilot, backend):
        arrive(app, "colon", *"theme", "enter")
        assert "› trainmon-dark  (current)" in await settled(pilot)
        await pilot.press("down", "enter")
        await at_rest(pilot)
        assert app.theme == "trainmon-light"

        arrive(app, "colon", *"contrast", "enter")
        await at_rest(pilot)
        assert app.theme == "trainmon-clear"
        assert planned(backend) == []


async def test_an_alert_is_opened_by_its_id() -> None:
    async with showing(plans.STATES["alarmed"]()) as (app, pilot, _):
        arrive(app, "colon", *"aaaa0006", "enter")
        await at_rest(pilot)

        assert thing_shown(app) == "alert"
        assert app.screen.pane.about == "aaaa0006"


async def test_no_key_after_the_colon_raises_a_message() -> None:
    async with showing() as (app, pilot, _):
        await pilot.press("colon")
        for key in (*"gpu Q7.-", "left", "delete", "backspace", "ctrl+w"):
            await pilot.press(key)
            await at_rest(pilot)
            assert isinstance(app.screen, CommandPalette)
            assert "nothing" not in text_of(app)
        assert not app._notifications


async def test_capitals_after_the_colon_are_typed_and_open_no_plan() -> None:
    async with showing() as (app, pilot, backend):
        await pilot.press("enter")
        await at_rest(pilot)
        arrive(app, "colon", *"SKRCX")
        await at_rest(pilot)

        assert isinstance(app.screen, CommandPalette)
        assert app.screen.typed == "SKRCX"
        assert planned(backend) == []


def test_a_command_typed_at_once_works_on_a_real_terminal() -> None:
    with Terminal("-m", "tests.tui.live", "troubled", size=(80, 24)) as terminal:
        assert terminal.shows("q Quit")
        terminal.press(":disk\r")
        assert terminal.shows("─ 3 Disk ─"), terminal.text
        terminal.press(":theme\r")
        assert terminal.shows("Theme"), terminal.text
