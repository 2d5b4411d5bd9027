"""Copies of curves: they grow by what came, stand on ascending steps, and are smoothed as TensorBoard smooths."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import pytest

from trainmon.engine.history import POINTS_AT_MOST, Curves
from trainmon.model import Curve, Points
from tui.charts.curves import Copies, Copy

PATH, KEY = "team/project/id1", "loss"


class Store(Curves):
    """The engine's own store, which counts the points that it hands out."""

    def __init__(self) -> None:
        super().__init__()
        self.handed = 0

    def ask(self, path: str, key: str, epoch: int, start: int) -> Curve:
        curve = self.read(path, key, epoch, start)
        self.handed += len(curve.steps)
        return curve

    def log(self, steps: Sequence[float], values: Sequence[float] = (), times: Sequence[float] = ()) -> None:
        found = tuple(values) or tuple(1.0 for _ in steps)
        self.grow(PATH, {KEY: Points(tuple(steps), tuple(times) or tuple(steps), found)}, fresh=False)


def definition(values: Sequence[float], weight: float) -> list[float]:
    """Word for word: last · weight + (1 - weight) · value, over 1 - weight^count."""
    last, smoothed = 0.0, []
    for count, value in enumerate(values, start=1):
        last = last * weight + (1 - weight) * value
        smoothed.append(last / (1 - weight**count))
    return smoothed


def test_each_read_requests_what_came_since_the_one_before() -> None:
    store = Store()
    copies = Copies(store.ask)
    store.log(range(1000))
    copies.update(PATH, KEY)
    store.log([1000.0, 1001.0], [5.0, 6.0])

    copy = copies.update(PATH, KEY)

    assert store.handed == 1002
    assert list(copy.steps[-2:]) == [1000.0, 1001.0]
    assert list(copy.values[-2:]) == [5.0, 6.0]


def test_nothing_new_changes_nothing() -> None:
    store, copy = Store(), Copy()
    assert not copy.take(store.read(PATH, KEY))
    store.log([1.0])
    assert copy.take(store.read(PATH, KEY, copy.epoch, copy.read))
    assert not copy.take(store.read(PATH, KEY, copy.epoch, copy.read))


def test_a_curve_that_was_thinned_is_read_anew() -> None:
    store = Store()
    copies = Copies(store.ask)
    store.log(range(POINTS_AT_MOST))
    version = copies.update(PATH, KEY).version
    store.log([float(POINTS_AT_MOST)])

    copy = copies.update(PATH, KEY)

    assert len(copy) == len(store.read(PATH, KEY).steps) < POINTS_AT_MOST
    assert copy.version != version


def test_steps_that_went_back_are_put_in_order_with_their_values() -> None:
    store, copy = Store(), Copy()
    store.log([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    copy.take(store.read(PATH, KEY))
    store.log([2.5, 4.0], [25.0, 40.0])
    copy.take(store.read(PATH, KEY, copy.epoch, copy.read))

    assert list(copy.steps) == [1.0, 2.0, 2.5, 3.0, 4.0]
    assert list(copy.values) == [10.0, 20.0, 25.0, 30.0, 40.0]
    assert not copy.take(store.read(PATH, KEY, copy.epoch, copy.read))


def test_a_clock_that_was_set_back_stands_still_and_an_unknown_time_is_the_one_before() -> None:
    store, copy = Store(), Copy()
    store.log([1.0, 2.0, 3.0, 4.0, 5.0], times=[math.nan, 100.0, 90.0, math.inf, 110.0])
    copy.take(store.read(PATH, KEY))

    assert list(copy.times) == [100.0, 100.0, 100.0, 100.0, 110.0]


def test_a_point_without_a_step_is_left_out_and_not_requested_again() -> None:
    store, copy = Store(), Copy()
    store.log([1.0, math.nan, 3.0], [1.0, 2.0, 3.0])
    copy.take(store.read(PATH, KEY))

    assert list(copy.steps) == [1.0, 3.0]
    assert not copy.take(store.read(PATH, KEY, copy.epoch, copy.read))


@pytest.mark.parametrize("weight", [0.6, 0.9, 0.99])
def test_smoothing_is_the_debiased_moving_average(weight: float) -> None:
    store, copy = Store(), Copy()
    values = [math.sin(step / 7.0) * 3.0 + 5.0 for step in range(300)]
    store.log(range(300), values)
    copy.take(store.read(PATH, KEY))

    assert list(copy.ys(weight)) == pytest.approx(definition(values, weight))
    assert copy.ys(0.0) is copy.values


def test_smoothing_goes_on_where_it_was_when_points_come() -> None:
    store, copy = Store(), Copy()
    values = [float(step % 13) for step in range(120)]
    for start in range(0, 120, 40):
        store.log(range(start, start + 40), values[start : start + 40])
        copy.take(store.read(PATH, KEY, copy.epoch, copy.read))
        copy.ys(0.9)

    assert list(copy.ys(0.9)) == pytest.approx(definition(values, 0.9))


def test_what_is_no_number_shows_in_a_smoothed_curve_and_does_not_enter_it() -> None:
    store, copy = Store(), Copy()
    store.log(range(5), [1.0, math.nan, 2.0, -math.inf, 3.0])
    copy.take(store.read(PATH, KEY))
    smoothed = copy.ys(0.6)

    assert math.isnan(smoothed[1])
    assert smoothed[3] == -math.inf
    assert [smoothed[0], smoothed[2], smoothed[4]] == pytest.approx(definition([1.0, 2.0, 3.0], 0.6))


def test_values_and_times_are_found_by_step() -> None:
    copy = Copy()
    copy.take(Curve(2, 0, array("d", [10.0, 20.0, 30.0]), array("d", [1.0, 2.0, 3.0]), array("d", [0.1, 0.2, 0.3])))

    assert [copy.index_of(step) for step in (9.0, 20.0, 25.0, 99.0)] == [0, 1, 1, 2]
    assert copy.crossed(1.5, by_time=True) == 20.0
    assert copy.crossed(4.0, by_time=True) is None


def test_a_copy_that_is_not_shown_any_more_is_forgotten() -> None:
    store = Store()
    copies = Copies(store.ask)
    store.log([1.0])
    copies.update(PATH, KEY)

    assert len(copies.known(PATH, KEY)) == 1

    copies.keep(("another/run/id",), (KEY,))

    assert not len(copies.known(PATH, KEY))
