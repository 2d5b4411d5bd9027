"""Sixty subjects that flap for hours: the last hour costs what the second did.

This is `tests/bench/flapping.py` in short. The bench measures the CPU seconds of a day. Those of hours that take a
second differ by more than 5 % on a machine that others use. So this counts calls instead.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.flapping import PER_DAY, REACH, Day, Hour


def cost_of_an_hour(day: Day) -> tuple[int, Hour]:
    """The calls of functions, and the hour."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return (hour := day.hour()) and calls, hour
    finally:
        sys.setprofile(before)


def test_the_last_of_four_hours_costs_what_the_second_did(tmp_path: Path) -> None:
    day = Day(tmp_path, tick=20.0)
    (_, _), (calls, second), (_, _), (last_calls, last) = (cost_of_an_hour(day) for _ in range(4))
    day.close()
    assert second.fired > 100, "it flaps"
    assert last_calls <= REACH * calls
    assert last.rss_mib <= REACH * second.rss_mib
    assert last.alerts <= 3 * 60
    assert len(day.sent) <= PER_DAY
