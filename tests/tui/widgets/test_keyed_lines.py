"""KeyedLines: what is painted, where the cursor stays, keys and mouse. The regions are those of the real widget."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region

from tui.style import Row, Span, width_of
from tui.widgets import GUTTER, Heading, KeyedLines, changed_ranges


def row(key: str, *texts: str) -> Row:
    return Row(key, tuple(Span(text) for text in (texts or (key,))))


class Watched(KeyedLines):
    """The real widget; it also remembers which regions it asked to be painted (None is all of it)."""

    def __init__(self) -> None:
        super().__init__()
        self.painted: list[Region | None] = []

    def refresh(self, *regions: Region, **how: Any) -> Any:
        if hasattr(self, "painted"):
            self.painted.extend(regions or [None])
        return super().refresh(*regions, **how)


class Screenful(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.moved: list[str | None] = []
        self.chosen: list[str] = []

    def compose(self) -> ComposeResult:
        yield Heading()
        yield Watched()

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        self.moved.append(event.key)

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        self.chosen.append(event.key)

    @property
    def lines(self) -> Watched:
        return self.query_one(Watched)

    def shown(self) -> list[str]:
        height = self.lines.size.height
        return [self.lines.render_line(y).text.rstrip() for y in range(height)]


async def show(app: Screenful, pilot: Any, rows: Iterable[Row]) -> None:
    app.lines.set_rows(list(rows))
    await pilot.pause()
    app.lines.painted.clear()


@pytest.mark.parametrize(
    ("old", "new", "columns"),
    [
        (("ab", "cd"), ("ab", "cd"), []),
        (("ab", "cd", "ef"), ("ab", "xx", "ef"), [(2, 4)]),
        (("ab", "cd", "ef"), ("ab", "cd", "e"), [(4, 6)]),
        (("ab", "cd", "ef"), ("xb", "cd", "ex"), [(0, 6)]),
        (("ab", "c" * 20, "ef"), ("xb", "c" * 20, "ex"), [(0, 2), (22, 24)]),
        (("日本", "cd"), ("日本", "xd"), [(4, 6)]),
        ((), ("ab",), [(0, 2)]),
    ],
)
def test_the_stretch_that_differs_is_counted_in_terminal_cells(
    old: tuple[str, ...], new: tuple[str, ...], columns: list[tuple[int, int]]
) -> None:
    assert changed_ranges([Span(t) for t in old], [Span(t) for t in new]) == columns


def test_a_change_of_style_alone_is_a_change() -> None:
    assert changed_ranges([Span("ab"), Span("94")], [Span("ab"), Span("94", "crit")]) == [(2, 4)]


def test_a_wide_character_takes_two_cells() -> None:
    assert width_of([Span("日本"), Span("a")]) == 5


async def test_one_changed_cell_paints_only_its_cells() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        rows = [row(f"n{i}", f"n{i:02}  ", "61 ", "62 ", "63 ") for i in range(10)]
        await show(app, pilot, rows)
        rows[4] = row("n4", "n04  ", "61 ", "99 ", "63 ")
        app.lines.set_rows(rows)
        assert app.lines.painted == [Region(GUTTER + 8, 4, 3, 1)]


async def test_the_same_rows_again_paint_nothing() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(app, pilot, [row("a"), row("b")])
        app.lines.set_rows([row("a"), row("b")])
        assert app.lines.painted == []


async def test_a_change_out_of_sight_paints_nothing_and_shows_when_scrolled_to() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 10)) as pilot:
        rows = [row(f"n{i}") for i in range(40)]
        await show(app, pilot, rows)
        rows[30] = row("n30", "changed")
        app.lines.set_rows(rows)
        assert app.lines.painted == []
        app.lines.focus()
        app.lines.move_to("n30")
        await pilot.pause()
        assert "›changed" in app.shown()


async def test_more_rows_out_of_sight_paint_only_the_bar_and_can_be_scrolled_to() -> None:
    app = Screenful()
    async with app.run_test(size=(40, 12)) as pilot:
        await show(app, pilot, (row(f"row {n}") for n in range(100)))
        lines, height = app.lines, app.lines.size.height
        lines.set_rows([row(f"row {n}") for n in range(110)])
        assert lines.painted == []
        assert lines.vertical_scrollbar.window_virtual_size == 110
        lines.action_last()
        await pilot.pause()
        assert (lines.scroll_offset.y, app.shown()[-1].strip("› ")) == (110 - height, "row 109")
        lines.set_rows([row(f"row {n}") for n in range(50)])
        await pilot.pause()
        assert (lines.scroll_offset.y, app.shown()[-1].strip("› ")) == (50 - height, "row 49")
        lines.set_rows([row(f"row {n}") for n in range(height)])
        await pilot.pause()
        assert not lines.show_vertical_scrollbar


async def test_the_cursor_stays_with_its_key_after_a_sort() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(app, pilot, [row("a"), row("b"), row("c")])
        app.lines.move_to("c")
        await show(app, pilot, [row("c"), row("a"), row("b")])
        assert app.lines.cursor_key == "c"
        assert app.shown()[:3] == ["›c", " a", " b"]


async def test_the_cursor_falls_to_the_row_below_when_its_own_is_gone_and_above_at_the_end() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(app, pilot, [row(key) for key in "abcd"])
        app.lines.move_to("b")
        await show(app, pilot, [row(key) for key in "acd"])
        assert app.lines.cursor_key == "c"
        app.lines.move_to("d")
        await show(app, pilot, [row(key) for key in "ac"])
        assert app.lines.cursor_key == "c"
        await show(app, pilot, [])
        assert app.lines.cursor_key is None
        assert app.moved == ["a", "b", "c", "d", "c", None]


async def test_keys_move_mark_and_choose() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 8)) as pilot:
        await show(app, pilot, [row(f"n{i:02}") for i in range(40)])
        app.lines.focus()
        await pilot.press("j", "down", "k", "enter")
        assert app.chosen == ["n01"]
        app.lines.action_toggle_mark()
        assert app.lines.marked == {"n01"}
        assert app.lines.cursor_key == "n02"
        await pilot.press("G")
        assert app.lines.cursor_key == "n39"
        assert app.shown()[-1] == "›n39"
        await pilot.press("pageup", "g")
        assert app.lines.cursor_key == "n00"
        assert app.shown()[:2] == ["›n00", "+n01"]


async def test_half_and_whole_pages_are_moved_by_the_keys_of_less_and_vi() -> None:
    app = Screenful()
    async with app.run_test(size=(30, 11)) as pilot:
        await show(app, pilot, [row(f"{n:03}", f"{n:03}") for n in range(100)])
        places = []
        for key in ("ctrl+d", "ctrl+f", "ctrl+u", "ctrl+b", "ctrl+b"):
            await pilot.press(key)
            places.append(int(app.lines.cursor_key or -1))
        height = app.lines.size.height
        half, page = height // 2, height - 1
        assert places == [half, half + page, page, 0, 0]


async def test_a_mark_moves_with_its_key_and_outlives_a_filter() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 8)) as pilot:
        same = [Row(key, (Span("same"),)) for key in "abc"]
        await show(app, pilot, same)
        app.lines.move_to("c")
        app.lines.toggle_mark()
        app.lines.move_to("a")
        await show(app, pilot, [same[0], same[2], same[1]])
        assert app.shown()[:3] == ["›same", "+same", " same"]
        await show(app, pilot, same[:2])
        assert (app.lines.marks(), app.lines.marks_in_sight) == (["c"], 0)
        assert app.shown()[:3] == ["›same", " same", ""]
        await show(app, pilot, [same[2], same[0]])
        assert (app.lines.marks(), app.lines.marks_in_sight) == (["c"], 1)
        assert app.shown()[:2] == ["+same", "›same"]


async def test_marks_are_listed_in_the_order_of_their_rows_and_taken_from_what_is_gone() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 8)) as pilot:
        await show(app, pilot, [row(key) for key in "abcd"])
        for key in "dba":
            app.lines.move_to(key)
            app.lines.toggle_mark()
        assert app.lines.marks() == ["a", "b", "d"]

        app.lines.keep_marks(lambda key: key != "b")
        await pilot.pause()
        assert app.lines.marks() == ["a", "d"]
        assert app.shown()[:4] == ["+a", " b", " c", "+d"]

        app.lines.keep_marks(lambda _: False)
        assert app.lines.marks() == []


async def test_a_click_selects_and_a_double_click_chooses() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(app, pilot, [row(key) for key in "abcd"])
        await pilot.click(Watched, offset=(5, 2))
        assert (app.lines.cursor_key, app.chosen) == ("c", [])
        await pilot.click(Watched, offset=(5, 3), times=2)
        assert (app.lines.cursor_key, app.chosen) == ("d", ["d"])
        await pilot.click(Watched, offset=(5, 9))
        assert app.lines.cursor_key == "d"


async def test_markup_and_brackets_are_plain_text() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(app, pilot, [row("a", "[red]not red[/red] [link=x]")])
        assert app.shown()[0] == "›[red]not red[/red] [link=x]"


async def test_a_heading_paints_once_and_then_only_what_changed() -> None:
    app = Screenful()
    async with app.run_test(size=(60, 20)) as pilot:
        heading = app.query_one(Heading)
        heading.set_spans([Span("NODE", "head"), Span("  GPU")])
        await pilot.pause()
        assert heading.render_line(0).text.rstrip() == " NODE  GPU"


async def test_a_row_is_laid_out_when_it_comes_into_sight_and_one_that_fails_says_so() -> None:
    made: list[str] = []

    def spans(key: str) -> tuple[Span, ...]:
        made.append(key)
        return (Span(f"row {1 // (key != 'k60')} {key}"),)

    app = Screenful()
    async with app.run_test(size=(40, 10)) as pilot:
        await show(app, pilot, [Row(f"k{n:02}", partial(spans, f"k{n:02}")) for n in range(100)])
        assert 0 < len(made) < 20
        await pilot.press("G")
        assert app.lines.rows[99].text == "row 1 k99"
        assert "ZeroDivisionError" in app.lines.rows[60].text
        assert len(made) < 40
