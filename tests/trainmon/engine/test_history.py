"""The curves of W&B runs: columns of numbers, read from a point on."""

from __future__ import annotations

import math
from array import array

from trainmon.engine.engine import Engine
from trainmon.engine.history import CURVES_AT_MOST, POINTS_AT_MOST, Curves
from trainmon.model import CurvesGrew, Points


def points(first: int, count: int) -> Points:
    column = array("d", (float(i) for i in range(first, first + count)))
    return Points(column, column, column)


def test_a_reader_that_knows_some_points_is_given_the_rest() -> None:
    curves = Curves()
    curves.grow("t/p/a", {"loss": points(0, 5)}, fresh=True)
    all_ = curves.read("t/p/a", "loss")
    assert (all_.start, list(all_.values)) == (0, [0.0, 1.0, 2.0, 3.0, 4.0])
    curves.grow("t/p/a", {"loss": points(5, 2)}, fresh=False)
    rest = curves.read("t/p/a", "loss", all_.epoch, 5)
    assert (rest.epoch, rest.start, list(rest.steps)) == (all_.epoch, 5, [5.0, 6.0])
    assert list(curves.read("t/p/a", "loss", all_.epoch, 7).steps) == []


def test_points_that_begin_anew_have_another_epoch_and_are_read_from_the_start() -> None:
    curves = Curves()
    curves.grow("t/p/a", {"loss": points(0, 5)}, fresh=True)
    old = curves.read("t/p/a", "loss")
    curves.grow("t/p/a", {"loss": points(0, 3)}, fresh=True)
    new = curves.read("t/p/a", "loss", old.epoch, 5)
    assert (new.epoch != old.epoch, new.start, len(new.steps)) == (True, 0, 3)


def test_what_is_not_known_is_an_empty_curve_of_no_epoch() -> None:
    nothing = Curves().read("t/p/a", "loss", 3, 9)
    assert (nothing.epoch, nothing.start, list(nothing.values)) == (0, 0, [])


def test_a_reader_may_keep_what_it_got_while_the_curve_grows() -> None:
    curves = Curves()
    curves.grow("t/p/a", {"loss": points(0, 5)}, fresh=True)
    got = curves.read("t/p/a", "loss")
    curves.grow("t/p/a", {"loss": points(5, 5)}, fresh=False)
    assert len(got.values) == 5


def test_a_curve_that_is_too_long_loses_every_second_point_of_its_older_half() -> None:
    curves = Curves()
    curves.grow("t/p/a", {"loss": points(0, POINTS_AT_MOST)}, fresh=True)
    old = curves.read("t/p/a", "loss").epoch
    curves.grow("t/p/a", {"loss": points(POINTS_AT_MOST, 2)}, fresh=False)
    thinned = curves.read("t/p/a", "loss", old, 7)
    assert (thinned.epoch != old, thinned.start) == (True, 0)
    assert len(thinned.values) == POINTS_AT_MOST * 3 // 4 + 2
    assert list(thinned.steps[:3]) == [0.0, 2.0, 4.0]
    assert thinned.steps[-1] == POINTS_AT_MOST + 1


def test_of_too_many_curves_those_that_grew_longest_ago_go() -> None:
    curves = Curves()
    curves.grow("first", {"loss": points(0, 1)}, fresh=True)
    curves.grow("second", {"loss": points(0, 1)}, fresh=True)
    curves.grow("first", {"loss": points(1, 1)}, fresh=False)
    curves.grow("third", {f"m{i}": points(0, 1) for i in range(CURVES_AT_MOST - 1)}, fresh=True)
    assert len(curves.read("first", "loss").steps) == 2
    assert len(curves.read("second", "loss").steps) == 0


def test_fifty_runs_with_three_hundred_metrics_keep_all_their_curves() -> None:
    curves, names = Curves(), [f"m{number}" for number in range(300)]
    for step in range(2):
        for run in range(50):
            curves.grow(f"file/{run}/d", {name: points(step, 1) for name in names}, fresh=False)
    assert {len(curves.read(f"file/{run}/d", name).steps) for run in range(50) for name in names} == {2}


def test_the_engine_keeps_what_grew_and_hands_it_out() -> None:
    engine = Engine()
    nan = Points((7.0,), (70.0,), (math.nan,))
    engine.step([CurvesGrew("llm", "t/p/a", 1.0, {"loss": nan}, fresh=True)], 1.0)
    curve = engine.curve("t/p/a", "loss")
    assert (list(curve.steps), list(curve.times), math.isnan(curve.values[0])) == ([7.0], [70.0], True)
