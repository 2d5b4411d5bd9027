"""Whether a memory leaks, and when it is exhausted."""

from __future__ import annotations

import pytest

from trainmon.analysis.nodes import BUCKETS, leak

TOTAL = 1_000_000
TEN = 600.0


def floors(*values: int) -> tuple[tuple[float, int], ...]:
    return tuple((index * TEN, value) for index, value in enumerate(values))


def rising(count: int, by: int = 10_000, first: int = 400_000) -> list[int]:
    return [first + by * index for index in range(count)]


def test_a_floor_that_rises_for_an_hour_is_a_leak() -> None:
    values = rising(10)
    found = leak(floors(*values), TOTAL, 9 * TEN)
    assert found is not None
    assert found.mib_per_hour == pytest.approx(60_000)
    assert found.since == 0.0
    assert found.full_at == pytest.approx(9 * TEN + (TOTAL - values[-1]) / 60_000 * 3_600)


def test_less_than_an_hour_is_no_leak() -> None:
    assert leak(floors(*rising(BUCKETS)), TOTAL, BUCKETS * TEN) is None
    assert leak((), TOTAL, 0.0) is None


def test_a_fall_is_the_end_of_what_was_before() -> None:
    values = [*rising(6), 440_000, *rising(4, first=460_000)]
    assert leak(floors(*values), TOTAL, len(values) * TEN) is None


def test_a_leak_that_began_after_a_calm_is_seen_with_its_own_begin() -> None:
    values = [400_000] * 10 + rising(9)
    found = leak(floors(*values), TOTAL, len(values) * TEN)
    assert found is not None
    assert found.since == 10 * TEN
    assert found.mib_per_hour == pytest.approx(60_000)


def test_a_leak_in_steps_is_a_leak() -> None:
    """One that loses its memory at each evaluation, every half hour."""
    values = [400_000 + 20_000 * (index // 3) - 300 * (index % 2) for index in range(19)]
    found = leak(floors(*values), TOTAL, len(values) * TEN)
    assert found is not None
    assert found.mib_per_hour == pytest.approx(40_000, rel=0.1)


def test_a_start_is_no_leak_at_any_time() -> None:
    values = [*rising(4, by=100_000, first=100_000), *[400_000] * 30]
    for count in range(1, len(values)):
        assert leak(floors(*values[:count]), TOTAL, count * TEN) is None


def test_a_growth_below_two_percent_is_noise() -> None:
    assert leak(floors(*rising(12, by=1_000)), TOTAL, 12 * TEN) is None


def test_one_large_step_is_no_pace() -> None:
    values = [100_000, *rising(12, by=4_000)]
    found = leak(floors(*values), TOTAL, len(values) * TEN)
    assert found is not None
    assert found.mib_per_hour == pytest.approx(24_000)


def test_what_slackens_is_a_cache_that_fills() -> None:
    values = [int(900_000 - 500_000 * 0.7**index) for index in range(16)]
    assert leak(floors(*values), TOTAL, 16 * TEN) is None


def test_what_was_let_go_just_now_is_over() -> None:
    assert leak(floors(*rising(10), 300_000), TOTAL, 10 * TEN) is None


def test_one_that_is_full_has_no_time_left() -> None:
    values = rising(10, by=60_000)
    found = leak(floors(*values), 900_000, 9 * TEN)
    assert found is not None
    assert found.full_at == 9 * TEN
