"""A LogView on a running app: it follows, it stays, it marks, and it costs the rows in sight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from textual.app import App, ComposeResult

from tests.tui.states.states import iterations
from trainmon.model import LOG_LINES
from tui.widgets.log_view import LogView


class OneLog(App[None]):
    """Nothing but a log."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"rule": "#444444"}

    def compose(self) -> ComposeResult:
        yield LogView()


def rows(view: LogView) -> list[str]:
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def test_it_follows_the_end_and_draws_the_unfinished_line_last() -> None:
    async with OneLog().run_test(size=(40, 5)) as pilot:
        view = pilot.app.query_one(LogView)

        view.set_lines(("a", "b", "c", "d", "e"), 10, "50 %")

        assert rows(view) == ["b", "c", "d", "e", "50 %"]


async def test_once_scrolled_up_it_stays_where_it_is_until_f_or_the_end() -> None:
    async with OneLog().run_test(size=(40, 3)) as pilot:
        view = pilot.app.query_one(LogView)
        view.set_lines(tuple("abcdef"), 0, None)
        view.focus()

        await pilot.press("k")
        view.set_lines(tuple("abcdefgh"), 0, None)
        assert rows(view) == ["c", "d", "e"]
        assert not view.following

        await pilot.press("G")
        assert rows(view) == ["f", "g", "h"]
        assert view.following


async def test_the_wheel_scrolls_and_wrap_shows_the_whole_line() -> None:
    async with OneLog().run_test(size=(10, 3)) as pilot:
        view = pilot.app.query_one(LogView)
        view.set_lines(("0123456789abcdef", "end"), 0, None)
        view.focus()
        assert rows(view)[0] == "0123456789"

        await pilot.press("w")
        assert rows(view) == ["0123456789", "abcdef", "end"]


class Counted(tuple[str, ...]):
    """Lines that count how often one of them is read; all of them at once is none of these."""

    read: ClassVar[int] = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.read += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the whole log was gone through")


async def test_a_thousand_lines_a_second_cost_the_screen_and_not_the_log() -> None:
    async with OneLog().run_test(size=(120, 40)) as pilot:
        view = pilot.app.query_one(LogView)
        kept = Counted(iterations(LOG_LINES))
        for second in range(5):
            Counted.read = 0
            view.set_lines(kept, 1_000 * second, None)
            for y in range(40):
                view.render_line(y)

            assert 40 <= Counted.read <= 3 * 40, "what is read is what is in sight"


async def test_only_rows_that_look_different_are_painted() -> None:
    async with OneLog().run_test(size=(40, 5)) as pilot:
        view = pilot.app.query_one(LogView)
        view.set_lines(("a", "b"), 0, "1 %")
        await pilot.pause()
        painted: list[int] = []
        view.refresh = lambda *regions, **_: painted.extend(region.y for region in regions)  # type: ignore[method-assign,assignment,return-value]

        view.set_lines(("a", "b"), 0, "1 %")
        view.set_lines(("a", "b"), 0, "2 %")

        assert painted == [2]


async def test_escape_sequences_and_markup_stay_text() -> None:
    async with OneLog().run_test(size=(40, 3)) as pilot:
        view = pilot.app.query_one(LogView)

        view.set_lines(("\x1b[31mred\x1b[0m [bold]x[/]\x07",), 0, None)

        assert rows(view)[0] == "red [bold]x[/]"


async def test_the_match_is_in_sight_however_long_its_line_is() -> None:
    async with OneLog().run_test(size=(40, 3)) as pilot:
        view = pilot.app.query_one(LogView)
        view.set_lines(("short boom", "x" * 100 + "日本 boom " + "y" * 100, "end"), 0, None)

        view.search("boom")
        assert "本 boom y" in rows(view)[1]
        view.action_next_match(-1)
        assert rows(view)[0] == "short boom"
        view.search("")
        assert rows(view)[2] == "end"
