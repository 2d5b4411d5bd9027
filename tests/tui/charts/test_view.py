"""Looking at a part of the curves: zoomed, moved, followed, the last hour; what each key makes of it."""

from __future__ import annotations

from array import array

import pytest

from trainmon.model import Curve
from tui.charts.axes import Limits
from tui.charts.chart import LEAST, View, reach, window
from tui.charts.curves import Copy

ALL = Limits(0.0, 10_000.0)


def curve(first: int, last: int, step_s: float = 4.0) -> Copy:
    copy = Copy()
    steps = array("d", range(first, last + 1))
    times = array("d", (step * step_s for step in steps))
    copy.take(Curve(1, 0, steps, times, steps))
    return copy


LONG = curve(0, 10_000)


def seen(view: View, data: Limits = ALL) -> Limits:
    return window(view, data, LONG)


def test_at_first_all_is_seen() -> None:
    assert seen(View()) == ALL
    assert View().labels() == ("all", "by step")


def test_zooming_in_keeps_following_the_end() -> None:
    view = View().closer(ALL, ALL)
    assert seen(view) == Limits(5_000.0, 10_000.0)
    assert seen(view, Limits(0.0, 11_000.0)) == Limits(6_000.0, 11_000.0)


def test_a_window_that_was_moved_back_stays_and_says_so_and_at_the_end_it_follows_again() -> None:
    view = View().closer(ALL, ALL)
    held = view.moved(-1, seen(view), ALL)

    assert seen(held) == Limits(3_750.0, 8_750.0)
    assert seen(held, Limits(0.0, 11_000.0)) == Limits(3_750.0, 8_750.0)
    assert "held" in held.labels()
    assert held.moved(1, seen(held), ALL) == view


def test_a_window_that_is_held_is_zoomed_about_its_middle() -> None:
    view = View().closer(ALL, ALL)
    held = view.moved(-1, seen(view), ALL)
    near = held.closer(seen(held), ALL)

    assert seen(near) == Limits(5_000.0, 7_500.0)
    assert seen(near.farther(ALL)) == seen(held)


def test_it_does_not_move_before_the_first_step() -> None:
    view = View().closer(ALL, ALL)
    for _ in range(20):
        view = view.moved(-1, seen(view), ALL)
    assert seen(view) == Limits(0.0, 5_000.0)


def test_zooming_out_ends_at_all_of_it() -> None:
    view = View().closer(ALL, ALL).closer(ALL, ALL)
    view = view.farther(ALL).farther(ALL).farther(ALL)
    assert view == View()


def test_nobody_zooms_below_a_few_steps() -> None:
    view = View()
    for _ in range(40):
        view = view.closer(seen(view), ALL)
    assert seen(view).high - seen(view).low == LEAST


def test_all_of_it_has_nowhere_to_move() -> None:
    assert View().moved(-1, ALL, ALL) == View()


def test_the_last_hour_is_the_same_part_by_step_and_by_time() -> None:
    view = View(span="hour")
    assert seen(view) == Limits(9_100.0, 10_000.0)
    assert window(view._replace(by_time=True), Limits(0.0, 40_000.0), LONG) == Limits(36_400.0, 40_000.0)


def test_a_run_younger_than_an_hour_is_all_seen() -> None:
    young = curve(0, 100)
    assert window(View(span="hour"), Limits(0.0, 100.0), young) == Limits(0.0, 100.0)


def test_the_last_hour_can_be_moved_and_zoomed() -> None:
    view = View(span="hour")
    held = view.moved(-1, seen(view), ALL)
    assert seen(held) == Limits(8_875.0, 9_775.0)
    assert seen(view.closer(seen(view), ALL)) == Limits(9_550.0, 10_000.0)
    assert view.farther(ALL) == View()


def test_d_goes_through_the_spans_and_o_through_the_weights() -> None:
    view, spans, weights = View(), [], []
    for _ in range(3):
        view = view.other_span()
        spans.append(view.labels()[0])
    for _ in range(4):
        view = view.smoother()
        weights.append(view.weight)

    assert spans == ["last day", "last hour", "all"]
    assert weights == [0.6, 0.9, 0.99, 0.0]


def test_what_is_not_usual_is_shown() -> None:
    view = View(by_time=True, log=True, weight=0.9, compare=False, width=10.0, end=5.0)
    assert view.labels() == ("zoomed", "held", "by time", "log", "smooth 0.9", "alone")


@pytest.mark.parametrize("by_time", [False, True])
def test_curves_reach_from_the_first_point_of_all_to_the_last(by_time: bool) -> None:
    factor = 4.0 if by_time else 1.0
    assert reach([curve(50, 60), curve(10, 20), Copy()], by_time=by_time) == Limits(10 * factor, 60 * factor)
    assert reach([Copy()], by_time=by_time) is None
