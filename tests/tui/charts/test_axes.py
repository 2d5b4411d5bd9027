"""Axes: round numbers, which stay while the data fits."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tui.charts.axes import (
    DAY,
    HOUR,
    LABEL_WIDTH,
    X_PARTS,
    X_SPARE,
    Y_PARTS,
    Y_SPARE,
    Limits,
    clock_ticks,
    rounded,
    rounded_log,
    settled,
    settled_times,
    ticks,
)

NOON = 1_790_078_400.0
"""2026-09-22 12:00 UTC."""


def y(old: Limits | None, low: float, high: float, *, log: bool = False) -> Limits:
    return settled(old, low, high, parts=Y_PARTS, spare=Y_SPARE, log=log)


@pytest.mark.parametrize(
    ("low", "high", "limits"),
    [
        (1.83, 11.2, (0.0, 12.0)),
        (1.871, 1.929, (1.87, 1.93)),
        (0.0, 12_880.0, (0.0, 14_000.0)),
        (-5.0, 7.0, (-6.0, 8.0)),
        (7.0, 7.0, (6.2, 7.8)),
        (0.0, 0.0, (-1.0, 1.0)),
    ],
)
def test_limits_are_rounded_outwards(low: float, high: float, limits: tuple[float, float]) -> None:
    assert rounded(low, high, Y_PARTS) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("low", "high", "limits"),
    [(1.83, 11.2, (1.0, 20.0)), (3e-5, 0.4, (2e-5, 0.5)), (1.871, 1.929, (1.87, 1.93))],
)
def test_limits_of_a_log_axis_are_1_2_or_5_and_of_near_values_as_on_a_linear_one(
    low: float, high: float, limits: tuple[float, float]
) -> None:
    assert rounded_log(low, high) == pytest.approx(limits)


def test_an_axis_stays_while_the_data_fits_and_fills_half_of_it() -> None:
    limits = y(None, 1.8, 11.2)
    assert y(limits, 1.8, 10.0) is limits
    assert y(limits, 3.0, 9.5) is limits


def test_an_axis_opens_at_once_and_closes_in_when_half_is_empty() -> None:
    limits = y(None, 1.8, 11.2)
    assert y(limits, 1.8, 14.0).high >= 14.0
    assert y(limits, 1.8, 2.4).high < 3.0


def test_a_growing_run_moves_its_axis_a_few_times_and_not_with_each_step() -> None:
    limits, moves = None, 0
    for step in range(100, 20_000, 10):
        before, limits = limits, settled(limits, 0.0, float(step), parts=X_PARTS, spare=X_SPARE)
        moves += before != limits

    assert moves < 60


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.booleans())
@example(low=0.0, span=5e-324, log=False)
@example(low=1e-310, span=0.0, log=False)
@example(low=0.0, span=1.5768615432942223e-296, log=False)
def test_limits_always_hold_the_data_and_ticks_stand_within_them(low: float, span: float, log: bool) -> None:
    low = abs(low) + 1e-6 if log else low
    high = low + span
    limits = y(None, low, high, log=log)
    slack = 1e-6 * (abs(low) + abs(high) + 1e-9)

    assert limits.low <= low + slack
    assert limits.high >= high - slack
    assert limits.low < limits.high
    found = ticks(limits, 4, log=log)
    assert len({label for _, label in found}) == len(found)
    for at, label in found:
        assert limits.low - slack <= at <= limits.high + slack
        assert len(label) <= LABEL_WIDTH


@given(st.integers(1, 12), st.floats(1e-6, 1e9), st.booleans())
def test_there_are_no_more_ticks_than_fit(most: int, high: float, log: bool) -> None:
    limits = y(None, high / 1e3, high, log=log)
    assert len(ticks(limits, most, log=log)) <= max(2, most)


def test_labels_have_the_digits_that_distinguish_them() -> None:
    assert [label for _, label in ticks(Limits(0, 14_000), 3)] == ["0", "5k", "10k"]
    assert [label for _, label in ticks(Limits(1.87, 1.93), 3)] == ["1.88", "1.90", "1.92"]
    assert [label for _, label in ticks(Limits(1e-5, 10.0), 4, log=True)] == ["1e-5", "0.001", "0.1", "10"]
    assert [label for _, label in ticks(Limits(2.9e-4, 2.95e-4), 3)] == ["2.90e-4", "2.92e-4", "2.94e-4"]
    assert [label for _, label in ticks(Limits(100_000, 100_004), 3)] == ["100000", "100002", "100004"]
    assert [label for _, label in ticks(Limits(100_000, 100_004), 3, cells=9)] == ["100.000k", "100.002k", "100.004k"]
    assert [label for _, label in ticks(Limits(2.3456, 2.3457), 3)] == ["2.34560", "2.34565", "2.34570"]
    assert [label for _, label in ticks(Limits(2.34561, 2.34562), 3)] == ["2.34561", "+5e-6", "+1.0e-5"]
    assert [label for _, label in ticks(Limits(1_234_567, 1_234_570), 2)] == ["1234568", "1234570"]
    assert [label for _, label in ticks(Limits(380_000, 440_000), 4)] == ["380k", "400k", "420k", "440k"]


def test_times_are_those_of_a_clock_and_a_midnight_is_its_date() -> None:
    assert [label for _, label in clock_ticks(Limits(NOON - HOUR, NOON), 5)] == [
        "11:00", "11:15", "11:30", "11:45", "12:00",
    ]  # fmt: skip
    assert "22 Sep" in [label for _, label in clock_ticks(Limits(NOON - DAY, NOON), 6)]
    assert [label for _, label in clock_ticks(Limits(NOON, NOON + 20.0), 3)] == ["12:00:00", "12:00:15"]


def test_the_last_hour_does_not_move_with_each_point() -> None:
    limits, moves = None, 0
    for second in range(0, 3_600, 10):
        before, limits = limits, settled_times(limits, NOON - HOUR + second, NOON + second)
        moves += before != limits

    assert moves <= 13


def test_no_limits_are_not_a_number() -> None:
    assert all(map(math.isfinite, (*rounded(1e300, 1.1e300, 8), *rounded(-1e-300, 1e-300, 8))))
