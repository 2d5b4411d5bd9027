"""Intervals of few failures, and how often to save: against numbers that were calculated elsewhere."""

from __future__ import annotations

import pytest

from trainmon.analysis.explanation.report import (
    EXACT_TO,
    at_most,
    best_interval,
    expected_ettr,
    poisson_interval,
)

HOUR = 3_600.0


@pytest.mark.parametrize(("events", "node_days", "low", "high"), [
    (0, 64, 0.0, 58), (2, 64, 3.8, 113), (2, 640, 0.4, 11), (20, 640, 19, 48),
])  # fmt: skip
def test_few_failures_say_little(events: int, node_days: int, low: float, high: float) -> None:
    found = [1000 * mean / node_days for mean in poisson_interval(events)]
    assert found == [pytest.approx(low, abs=0.05 if low < 10 else 0.5), pytest.approx(high, abs=0.5)]


def test_the_interval_of_many_failures_continues_that_of_few() -> None:
    many = EXACT_TO + 1
    low, high = poisson_interval(many)
    assert (1 - at_most(many - 1, low), at_most(many, high)) == (pytest.approx(0.025, rel=1e-3),) * 2


def test_some_node_of_many_has_several_failures_by_chance() -> None:
    by_chance = [1 - at_most(most - 1, 20 / 64) ** 64 for most in (3, 4)]
    assert by_chance == [pytest.approx(0.22, abs=0.02), pytest.approx(0.02, abs=0.005)]


def test_how_often_to_save_follows_young_and_daly() -> None:
    """32 nodes, 6.5 failures per 1,000 node-days, saves that block for 2 minutes, restarts of 10 minutes."""
    mttf, blocks, restart = 24 * HOUR / (32 * 0.0065), 120.0, 600.0
    best = best_interval(mttf, blocks)
    assert (mttf / HOUR, best / 60) == (pytest.approx(115, abs=0.5), pytest.approx(165, abs=0.5))
    assert [round(expected_ettr(mttf, blocks, restart, every), 3) for every in (best, HOUR)] == [0.975, 0.962]
    nearby = (expected_ettr(mttf, blocks, restart, factor * best) for factor in (0.9, 1.1))
    assert expected_ettr(mttf, blocks, restart, best) >= max(nearby)
    assert best_interval(60.0, 600.0) == 60.0
