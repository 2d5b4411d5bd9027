"""The trend of a disk."""

from __future__ import annotations

import math

import pytest

from trainmon.forecast import Trend, trend

DAY = 86_400.0


def test_less_than_ten_minutes_of_history_tell_no_trend() -> None:
    assert trend([-500, -250, 0], [3.0, 2.0, 1.0], 0.0, 1.0) == Trend()


def test_a_steady_writer_fills_the_disk_when_it_says() -> None:
    ages = [-3600.0 + 60 * i for i in range(61)]
    free = [1e12 - 1e6 * (3600 + age) for age in ages]
    told = trend(ages, free, now=1000.0, left=free[-1])
    assert told.per_day == pytest.approx(1e6 * DAY)
    assert told.full_at == pytest.approx(1000.0 + free[-1] / 1e6)


def test_a_disk_that_gets_emptier_is_never_full() -> None:
    told = trend([-1200, -600, 0], [1.0, 2.0, 3.0], 0.0, 3.0)
    assert told.full_at is None
    assert told.per_day == pytest.approx(-2 / 1200 * DAY)


def test_one_deletion_does_not_turn_the_trend() -> None:
    ages = [-3600.0 + 60 * i for i in range(61)]
    free = [1e12 - 1e6 * (3600 + age) for age in ages]
    free[30] += 5e11
    assert trend(ages, free, 0.0, free[-1]).per_day == pytest.approx(1e6 * DAY, rel=0.01)


def test_gaps_are_left_out() -> None:
    told = trend([-1200, -900, -600, 0], [4.0, math.nan, 3.0, 2.0], 0.0, 2.0)
    assert told.per_day == pytest.approx(2 / 1200 * DAY, rel=0.3)
