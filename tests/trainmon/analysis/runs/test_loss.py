"""Whether a loss is a number, and inside its usual band."""

from __future__ import annotations

import math
import random

import pytest

from trainmon.analysis.runs.loss import ENOUGH, WINDOW, band, judge

NOISE = random.Random(7)
USUAL = tuple(2.3 + NOISE.gauss(0, 0.05) for _ in range(200))


def state(recent: tuple[float, ...], value: float) -> str:
    """What a value is after these."""
    return judge(value, band(recent))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_reported_from_the_first_point_on(value: float) -> None:
    assert state((), value) == "nan"
    assert state(USUAL, value) == "nan"


def test_a_loss_within_its_noise_is_fine_and_a_jump_is_a_spike_with_what_was_usual() -> None:
    assert {state(USUAL[:i], USUAL[i]) for i in range(len(USUAL))} == {"fine"}
    usual = band(USUAL)
    assert usual is not None
    assert (judge(9.1, usual), round(usual.low, 1), round(usual.high, 1)) == ("spike", 2.2, 2.4)


def test_nothing_is_a_spike_before_enough_points_are_known() -> None:
    assert state(USUAL[: ENOUGH - 1], 90.0) == "fine"
    assert state(USUAL[:ENOUGH], 90.0) == "spike"


def test_points_that_are_no_numbers_do_not_count_and_do_not_spoil_the_band() -> None:
    mixed = tuple(value for known in USUAL[:ENOUGH] for value in (known, math.nan))
    assert state(mixed, 2.35) == "fine"
    assert state(mixed, 9.1) == "spike"
    assert state((math.inf,) * 200, 9.1) == "fine"


def test_a_fall_of_any_depth_and_a_plateau_are_no_trouble() -> None:
    assert state(USUAL, 0.01) == "fine"
    assert state(USUAL, -40.0) == "fine"
    assert state((2.31,) * 200, 2.31) == "fine"


def test_a_loss_that_falls_as_training_begins_is_no_spike_anywhere() -> None:
    falling = [11.0 * math.exp(-i / 60) + 2.0 + NOISE.gauss(0, 0.05) for i in range(600)]
    assert {state(falling[:i], falling[i]) for i in range(len(falling))} == {"fine"}


def test_heavy_noise_has_few_spikes_in_ten_thousand_points() -> None:
    noise = [2.3 + NOISE.gauss(0, 0.2) for _ in range(10_000)]
    assert sum(state(noise[max(0, i - WINDOW) : i], noise[i]) == "spike" for i in range(0, 10_000, 7)) == 0


def test_a_flat_loss_has_a_band_of_a_twentieth() -> None:
    assert state((2.0,) * 200, 2.09) == "fine"
    assert state((2.0,) * 200, 2.11) == "spike"
    rounded = (2.31, 2.31, 2.31, 2.32) * 40
    assert state(rounded, 2.40) == "fine"
    assert state(rounded, 2.50) == "spike"


def test_losses_around_zero_and_below_have_bands_too() -> None:
    around = tuple(NOISE.gauss(0, 0.01) for _ in range(200))
    assert state(around, 0.03) == "fine"
    assert state(around, 1.0) == "spike"
    assert state(tuple(value - 5 for value in around), -4.0) == "spike"
    assert state((0.0,) * 200, 0.001) == "fine"
    assert band((0.0,) * 200) is None


def test_a_few_spikes_do_not_hide_the_next_and_a_new_level_becomes_usual() -> None:
    assert state((*USUAL[:180], *(9.0,) * 20), 9.1) == "spike"
    assert state((*USUAL, *(4.0 + 0.1 * (i % 3) for i in range(WINDOW))), 4.1) == "fine"


def test_only_the_last_values_make_the_band() -> None:
    assert state((900.0,) * 1000 + USUAL, 9.1) == "spike"
