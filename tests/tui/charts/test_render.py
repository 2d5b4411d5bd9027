"""A chart drawn: the very text of small ones in ASCII, the dots of Braille, and marks for what is no number."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

from tui.charts.axes import Limits
from tui.charts.curves import Columns, braille, ranges
from tui.charts.render import Chart, CurveLine, CurveRole, frame_of, one_a_line, picture
from tui.style import Span, ascii_text

WIDTH, HEIGHT = 28, 8


def line(
    values: Mapping[float, float], width: int, look: CurveRole = "now", letter: str = "", *, plain: bool
) -> CurveLine:
    xs, ys = array("d", values), array("d", values.values())
    return CurveLine(Columns().of(xs, ys, frame_of(Limits(0.0, 20.0), width, plain=plain), 1), look, letter)


def drawn(*curves: CurveLine, plain: bool = True, **more: object) -> list[str]:
    plain_chart: dict[str, object] = {
        "title": (Span("loss".ljust(WIDTH)),), "frame": frame_of(Limits(0.0, 20.0), WIDTH, plain=plain),
        "y": Limits(0.0, 4.0), "curves": curves, "x_ticks": [(0.0, "0"), (10.0, "10")],
        "y_ticks": [(0.0, "0"), (4.0, "4")],
    }  # fmt: skip
    chart = Chart(**{**plain_chart, **more})  # type: ignore[arg-type]
    lines = picture(chart, WIDTH, HEIGHT, plain=plain, labelled=True)
    texts = ["".join(span.text for span in spans) for spans in lines]
    return [ascii_text(text) for text in texts] if plain else texts


def rising() -> dict[float, float]:
    return {float(step): step / 5.0 for step in range(20)}


def test_a_chart_in_ascii() -> None:
    assert [text.rstrip() for text in drawn(line(rising(), WIDTH, plain=True))] == [
        "loss",
        "      4+                  **",
        "       |             *****",
        "       |        *****",
        "       |   *****",
        "      0+***",
        "       ++---------+---------",
        "        0        10",
    ]


def test_of_ticks_on_one_line_the_highest_is_written() -> None:
    ticks = ((0.0, "0"), (0.5, "5"), (1.0, "10"))

    assert one_a_line(ticks, 1) == ((1.0, "10"),)
    assert one_a_line(ticks, 2) == ((0.5, "5"), (1.0, "10"))
    assert one_a_line(ticks, 3) == ticks


def test_every_line_is_as_wide_as_the_chart() -> None:
    for plain in (True, False):
        texts = drawn(line(rising(), WIDTH, plain=plain), plain=plain)
        assert len(texts) == HEIGHT
        assert {len(text) for text in texts} == {WIDTH}


def test_braille_has_eight_dots_a_cell() -> None:
    found = ranges(
        Columns().of(array("d", [0.0, 1.0]), array("d", [0.0, 7.0]), frame_of(Limits(0.0, 2.0), 9, plain=False), 1), int
    )
    assert list(braille(found)) == [(0, 0, "⣸"), (1, 0, "⢸")] or len(found) == 2
    assert found == [(0, 3), (4, 7)]


def test_nan_and_infinities_are_marked_at_their_step_and_break_the_line() -> None:
    values = rising() | {5.0: math.nan, 10.0: math.inf, 15.0: -math.inf}
    texts = drawn(line(values, WIDTH, plain=True))

    assert texts[1][8:].rstrip() == "     X    ^       **"
    assert texts[5][8:].rstrip() == "***            v"
    assert all(text[8 + 5] == " " for text in texts[2:6])


def test_earlier_attempts_are_letters_and_the_present_one_lies_over_them() -> None:
    before = {float(step): 3.0 for step in range(12)}
    now = {float(step): 3.0 for step in range(8, 20)}
    texts = drawn(line(before, WIDTH, "before", "a", plain=True), line(now, WIDTH, plain=True))

    assert texts[2][8:].rstrip() == "aaaaaaaa************"


def test_in_braille_an_earlier_attempt_carries_its_letter() -> None:
    texts = drawn(line({float(step): 3.0 for step in range(20)}, WIDTH, "before", "b", plain=False), plain=False)
    assert "b" in texts[2]


def test_restarts_and_checkpoints_are_marked_and_cover_no_curve() -> None:
    texts = drawn(line(rising(), WIDTH, plain=True), restarts=(9.0,), saves=(4.0, 18.0, 300.0))

    assert [text[8 + 9] for text in texts[1:6]] == [":", ":", "*", ":", ":"]
    assert texts[6] == "       ++---^-----+-------^-"


def test_a_log_axis_gives_each_power_of_ten_as_much_room() -> None:
    values = {float(step): 10.0 ** (step / 5.0 - 2.0) for step in range(20)}
    ticks = [(0.01, "0.01"), (100.0, "100")]
    texts = drawn(line(values, WIDTH, plain=True), y=Limits(0.01, 100.0), log=True, y_ticks=ticks)

    assert texts[1].startswith("    100+")
    assert [text[8:].rstrip() for text in texts[1:6]] == [
        text[8:].rstrip() for text in drawn(line(rising(), WIDTH, plain=True))[1:6]
    ]


def test_what_a_log_axis_cannot_show_is_marked_at_its_foot() -> None:
    values = {1.0: 1.0, 8.0: 0.0, 15.0: 1.0}
    texts = drawn(line(values, WIDTH, plain=True), y=Limits(0.1, 10.0), log=True, y_ticks=[])
    assert texts[5][8 + 8] == "v"


def test_points_far_apart_are_joined() -> None:
    texts = drawn(line({0.0: 2.0, 19.0: 2.0}, WIDTH, plain=True))
    assert texts[3][8:] == "*" * 20
