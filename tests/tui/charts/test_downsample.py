"""Columns of a screen: nothing that a column can show is lost, whatever came in which pieces."""

from __future__ import annotations

import math
from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from tui.charts.curves import DOWN, NAN, UP, Column, Columns, Frame, column

VALUES = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf])), min_size=1, max_size=400
)


def straight(xs: array[float], ys: array[float], frame: Frame) -> list[Column | None]:
    """The same from all points at once, in the plainest way."""
    made: list[Column | None] = []
    width = (frame.high - frame.low) / frame.columns
    for place in range(frame.columns):
        begin, end = frame.low + place * width, frame.low + (place + 1) * width
        is_last = place == frame.columns - 1
        found = array("d", (y for x, y in zip(xs, ys, strict=True)
                            if begin <= x and (x < end or (is_last and x <= frame.high))))  # fmt: skip
        made.append(column(found) if found else None)
    return made


def same(a: Column | None, b: Column | None) -> bool:
    if a is None or b is None:
        return a is b
    return a == b or (not a.is_drawn and not b.is_drawn and a.odd == b.odd)


@given(VALUES, st.integers(1, 20), st.integers(1, 50))
@settings(max_examples=150)
def test_columns_made_piece_by_piece_are_those_of_all_points(values: list[float], columns: int, piece: int) -> None:
    frame = Frame(0.0, 512.0, columns if columns % 2 == 0 else 2 ** columns.bit_length())
    made, xs, ys = Columns(), array("d"), array("d")
    for start in range(0, len(values), piece):
        new = values[start : start + piece]
        ys.extend(new)
        xs.extend(float(start + place) for place in range(len(new)))
        found = made.of(xs, ys, frame, 1)

    assert all(map(same, found, straight(xs, ys, frame)))


def test_a_spike_of_one_point_in_100_000_is_seen() -> None:
    ys = array("d", [1.0]) * 100_000
    ys[61_803] = 9.0
    xs = array("d", range(100_000))

    found = Columns().of(xs, ys, Frame(0.0, 100_000.0, 160), 1)

    assert max(one.high for one in found if one is not None) == 9.0


def test_what_is_no_number_is_shown_beside_the_numbers() -> None:
    found = column(array("d", [1.0, math.nan, math.inf, -math.inf, 2.0]))
    assert (found.low, found.high, found.last, found.odd) == (1.0, 2.0, 2.0, NAN | UP | DOWN)

    nothing = column(array("d", [math.nan]))
    assert not nothing.is_drawn
    assert nothing.odd == NAN


def test_a_number_beyond_all_bounds_is_as_good_as_infinite() -> None:
    assert column(array("d", [1e35, 3e38])) == Column(1e35, 3e38, 3e38)
    assert column(array("d", [1.0, 1e308, -1e308, 2.0])) == Column(1.0, 2.0, 2.0, UP | DOWN)


def test_another_window_and_other_points_are_made_anew() -> None:
    xs, ys, made = array("d", range(100)), array("d", range(100)), Columns()
    made.of(xs, ys, Frame(0.0, 100.0, 10), 1)

    zoomed = made.of(xs, ys, Frame(90.0, 100.0, 10), 1)
    assert [one.high for one in zoomed if one is not None] == [float(value) for value in range(90, 100)]

    by_time = made.of(array("d", [99.0] * 100), ys, Frame(90.0, 100.0, 10), 1, along=True)
    assert [one.low for one in by_time if one is not None] == [0.0]

    rewritten = array("d", [5.0]) * 100
    again = made.of(xs, rewritten, Frame(90.0, 100.0, 10), 2)
    assert {one.high for one in again if one is not None} == {5.0}


def test_a_window_without_points_is_empty() -> None:
    xs = array("d", [1.0, 2.0])
    assert Columns().of(xs, xs, Frame(10.0, 20.0, 4), 1) == [None] * 4
    assert Columns().of(array("d"), array("d"), Frame(0.0, 1.0, 4), 1) == [None] * 4
