"""The log pane: what it keeps in sight, what it leaves out on request, and what it saves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.dashboard import publish, showing
from tests.tui.log_files import files, until_shown
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.states import calm, iterations, log, run, troubled
from trainmon.model import LogHits, LogPart, Run, State
from tui.app import Dashboard
from tui.panes.log import PART_LINES


async def test_wrapping_keeps_following() -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        await pilot.press("4", "w")
        await at_rest(pilot)
        assert "follow  wrap" in text_of(app)
        await pilot.press("w")
        await at_rest(pilot)
        assert "follow" in text_of(app)


async def test_only_the_lines_with_a_text_are_shown_until_escape() -> None:
    async with showing(troubled(), (100, 40)) as (app, pilot, backend):
        await pilot.press("4")
        await at_rest(pilot)
        view = app.main.log_pane.view
        every = view.text.lines
        wanted = every[-1].split()[0]
        await pilot.press("ampersand", *wanted, "enter")
        await at_rest(pilot)
        assert view.text.lines == tuple(line for line in every if wanted.lower() in line.lower())
        assert f"&{wanted}" in text_of(app)
        await publish(app, pilot, backend, troubled())
        assert f"&{wanted}" in text_of(app)

        await pilot.press("escape")
        await at_rest(pilot)
        assert view.text.lines == every

        await pilot.press("ampersand", *"nowhere", "enter")
        await at_rest(pilot)
        assert "no line has “nowhere”" in text_of(app)


async def test_what_is_shown_is_saved_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Downloads").mkdir()
    async with showing(troubled(), (100, 40)) as (app, pilot, _):
        await pilot.press("4", "s")
        await at_rest(pilot)
        assert "lines that are shown" in text_of(app)
        await pilot.press("enter")
        await at_rest(pilot)
        (file,) = tmp_path.glob("Downloads/*/*/log-*.txt")
        lines = app.main.log_pane.view.text.lines
        assert file.read_text(encoding="utf-8").splitlines() == list(lines)
        assert [toast.message for toast in app._notifications] == [f"{len(lines):,} lines in {file}"]


async def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Downloads").mkdir()
    (tmp_path / "Downloads" / "trainmon-tui").write_text("no folder")
    async with showing(troubled(), (100, 40)) as (app, pilot, _):
        await pilot.press("4", "s")
        await at_rest(pilot)
        await pilot.press("enter")
        await at_rest(pilot)
        (toast,) = app._notifications
        assert toast.message.startswith("not saved: ")


async def test_the_whole_file_is_saved_where_a_person_wants_it_and_nothing_is_overwritten(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(50_000))
    async with files(troubled(), text, tmp_path) as backend, showing(troubled(), (100, 40), backend) as (app, pilot, _):
        for _attempt in range(2):
            await pilot.press("4" if app.main.current != "4" else "f", "s")
            await at_rest(pilot)
            await pilot.press("down", "tab", "ctrl+u", *str(tmp_path / "mine.log"), "enter")
            await at_rest(pilot)
            await until_shown(pilot, "not saved: " if _attempt else " KiB in")
        assert (tmp_path / "mine.log").read_text() == text


async def test_esc_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with showing(troubled(), (100, 40)) as (app, pilot, _):
        await pilot.press("4", "s")
        await at_rest(pilot)
        await pilot.press("escape")
        await at_rest(pilot)
        assert [*tmp_path.rglob("*")] == []
        assert not app._notifications


# ---- the whole file --------------------------------------------------------------------------------------------------


def following(known: int = 300, last: int = 9_000) -> State:
    """A run of which the dashboard knows the last lines."""
    return replace(calm(), runs={"a": run("a", log=log(iterations(known, last)))})


@asynccontextmanager
async def reading(last: int, folder: Path) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    """A dashboard with its log on the full screen; the file has all lines up to the last step."""
    text = "".join(f"{line}\n" for line in iterations(last, last))
    async with files(following(), text, folder) as backend, showing(following(), (160, 40), backend) as shown:
        await shown[1].press("4", "4")
        yield shown


async def test_scrolling_up_goes_on_in_the_file_and_down_comes_back_to_the_end(tmp_path: Path) -> None:
    async with reading(9_000, tmp_path) as (app, pilot, backend):
        view, pane = app.main.log_pane.view, app.main.log_pane
        for _turn in range(300):
            app.simulate_key("pageup")
            await at_rest(pilot)
            if " 8000/" in text_of(app):
                break
            await asyncio.sleep(0.01)
        shown = [int(row.text.split("iteration")[1].split("/")[0]) for row in view._rows]
        assert shown == list(range(shown[0], shown[0] + len(shown))), "no line is left out"
        assert "of 1.7 MiB; G to the end" in text_of(app)
        assert all(view.text.said_in(row.line) is not None for row in view._rows), "step numbers are read, too"

        await publish(app, pilot, backend, following(300, 9_001))
        assert str(shown[0]) in view._rows[0].text, "new lines move nothing"
        for _turn in range(300):
            app.simulate_key("pagedown")
            await at_rest(pilot)
            if view.following:
                break
            await asyncio.sleep(0.01)
        assert pane.part is None
        assert "9001/" in text_of(app)


async def test_a_filter_in_old_lines_says_what_it_read_and_ends_without_following(tmp_path: Path) -> None:
    async with reading(9_000, tmp_path) as (app, pilot, _):
        await pilot.press("g")
        await until_shown(pilot, "       1/")
        await pilot.press("ampersand", *"   8999/", "enter")
        assert "no line has “   8999/” among those read; / searches the file" in await until_shown(pilot, "among")

        await pilot.press("escape")
        await until_shown(pilot, "       1/")
        assert "paused" in text_of(app)
        assert "follow  " not in text_of(app)


async def test_what_is_kept_of_the_file_is_bounded(tmp_path: Path) -> None:
    async with reading(30_000, tmp_path) as (app, pilot, _):
        await pilot.press("g")
        await until_shown(pilot, "       1/")
        pane = app.main.log_pane
        assert pane.part is not None
        for _turn in range(16):
            end = pane.part.end
            pane.view.move_by(len(pane.part.lines))
            while pane.part.end == end:
                await asyncio.sleep(0.01)
                await at_rest(pilot)
            assert len(pane.part.lines) <= PART_LINES
        assert pane.part.start > 0
        await pilot.press("g")
        await until_shown(pilot, "       1/")


async def test_a_search_shows_what_was_searched_and_escape_stops_it(tmp_path: Path) -> None:
    state, sources = following(), list[SlowSource]()

    def opened(one: Run) -> SlowSource:
        sources.append(SlowSource())
        return sources[-1]

    backend = FakeBackend(state)
    backend.log_source = opened
    async with showing(state, (160, 40), backend) as (app, pilot, _):
        await pilot.press("4", "4", "slash", *"zebra")
        await at_rest(pilot)
        assert "no match for “zebra” in the last 300 lines; Enter searches the whole file" in text_of(app)
        await pilot.press("enter")
        await at_rest(pilot)
        (source,) = sources
        assert source.searched == ["zebra"]
        source.reply(LogHits(begin=15 << 30, size=20 << 30))
        await until_shown(pilot, "searched 5.0 GiB of 20 GiB, 0 hits; Esc stops")
        await pilot.press("escape")
        await until_shown(pilot, "no match for “zebra” in the last 5.0 GiB")
        assert source.ended == ["search"]
        source.reply(LogHits(offsets=(7,), size=20 << 30, is_done=True))
        await at_rest(pilot)
        assert "in the last 5.0 GiB" in text_of(app), "what comes late does not count"
        await pilot.press("escape")
        await at_rest(pilot)
        assert "zebra" not in text_of(app)


async def test_a_search_that_fails_says_that_only_the_shown_lines_were_searched() -> None:
    state, source = following(), SlowSource()
    backend = FakeBackend(state)
    backend.log_source = lambda _: source
    async with showing(state, (160, 40), backend) as (app, pilot, _):
        await pilot.press("4", "4", "slash", *"8999/", "enter")
        await at_rest(pilot)
        source.reply(LogHits(error="gpu-001 is not connected"))
        await until_shown(pilot, "only these lines are searched for “8999/”: gpu-001 is not connected")
        assert app.main.log_pane.view.hit is not None
        await pilot.press("n")
        await at_rest(pilot)
        assert app.main.log_pane.view.hit is not None, "the shown lines are still searched"


async def test_a_log_that_is_replaced_meanwhile_is_followed_again_and_read_anew(tmp_path: Path) -> None:
    async with reading(9_000, tmp_path) as (app, pilot, _):
        await pilot.press("g")
        await until_shown(pilot, "       1/")
        (tmp_path / "train.log").write_text("a new begin\n" * 9_000)
        app.main.log_pane.view.move_by(9_000)
        await until_shown(pilot, "the log was replaced or truncated meanwhile")
        assert app.main.log_pane.view.following
        await pilot.press("g")
        await until_shown(pilot, "a new begin")


async def test_how_much_is_saved_is_shown_and_escape_stops_at_once(tmp_path: Path) -> None:
    state, source = following(), SlowSource()
    backend = FakeBackend(state)
    backend.log_source = lambda _: source
    async with showing(state, (160, 40), backend) as (app, pilot, _):
        await pilot.press("4", "4", "s", "down", "tab", "ctrl+u", *str(tmp_path / "mine.log"), "enter")
        await at_rest(pilot)
        source.saving("saved 3.2 MiB of 54 MiB into mine.log", False)
        await until_shown(pilot, "saved 3.2 MiB of 54 MiB into mine.log; Esc stops")
        await pilot.press("slash", *"zebra", "enter")
        source.reply(LogHits(begin=15 << 30, size=20 << 30))
        await until_shown(pilot, "searched 5.0 GiB of 20 GiB, 0 hits; Esc stops")
        await pilot.press("escape", "escape")
        await at_rest(pilot)
        assert source.ended == ["search", "save"]
        assert "Esc stops" not in text_of(app)
        source.saving("not saved: stopped", True)
        await until_shown(pilot, "not saved: stopped")


async def test_escape_gives_up_a_read_that_takes_long() -> None:
    state, source = following(), SlowSource()
    backend = FakeBackend(state)
    backend.log_source = lambda _: source
    async with showing(state, (160, 40), backend) as (app, pilot, _):
        await pilot.press("4", "4", "g")
        await until_shown(pilot, "reading the file; Esc stops")
        await pilot.press("escape")
        await at_rest(pilot)
        assert "reading" not in text_of(app)
        source.part(LogPart(end=6, size=6, lines=("first",), offsets=(0,), numbers=(None,)))
        await at_rest(pilot)
        assert app.main.log_pane.part is None


async def test_where_a_short_file_begins_the_files_with_its_older_lines_are_named(tmp_path: Path) -> None:
    lines = iterations(30, 9_000)
    text = "".join(f"{line}\n" for line in lines)
    whole = replace(calm(), runs={"a": run("a", log=log(lines, size=len(text)))})
    (tmp_path / "train.log.1").write_text("older")
    (tmp_path / "train.log.2.gz").write_text("oldest")
    async with files(whole, text, tmp_path) as backend, showing(whole, (160, 40), backend) as (_, pilot, _backend):
        await pilot.press("4", "4", "g")
        shown = await until_shown(pilot, "older lines may be in ")
        assert "train.log.2.gz" in shown
        await pilot.press("slash", *"zebra", "enter")
        assert "; older lines may be in train.log" in await until_shown(pilot, "no match for “zebra” in all ")


async def test_a_hit_in_a_part_of_a_line_that_is_not_kept_says_so(tmp_path: Path) -> None:
    text = "".join(f"line {number} {'x' * 9_000} end{number}\n" for number in range(100))
    async with files(following(), text, tmp_path) as backend, showing(following(), (160, 40), backend) as (_, pilot, _):
        await pilot.press("4", "4", "g")
        await until_shown(pilot, "line 0 ")
        await pilot.press("slash", *"end7", "enter")
        shown = await until_shown(pilot, "this hit is in a part of its line that is not shown")
        assert " of 11 in all " in shown, shown


class SlowSource:
    """A file whose search goes on until a test says what it has found."""

    def __init__(self) -> None:
        self.searched: list[str] = []
        self.ended: list[str] = []
        self.reply: Callable[[LogHits], object] = lambda hits: None
        self.saving: Callable[[str, bool], object] = lambda sentence, is_last: None
        self.part: Callable[[LogPart], object] = lambda part: None

    def search(self, text: str, reply: Callable[[LogHits], object]) -> Callable[[], None]:
        self.searched.append(text)
        self.reply = reply
        return partial(self.ended.append, "search")

    def save(self, file: Path, reply: Callable[[str, bool], object]) -> Callable[[], None]:
        self.saving = reply
        return partial(self.ended.append, "save")

    def read(self, start: int, end: int, reply: Callable[[LogPart], object]) -> None:
        self.part = reply

    def above(self, lines: Sequence[str], near: int, reply: Callable[[LogPart], object]) -> None:
        raise AssertionError("nothing is to be read")

    def find(self, at: float, step: int | None, evidence: Sequence[str], reply: Callable[[LogPart], object]) -> None:
        raise AssertionError("nothing is to be read")
