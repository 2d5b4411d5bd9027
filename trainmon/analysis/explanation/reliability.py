"""How often attempts fail and how sure that is, and how often to save: Poisson, Young and Daly. Pure.

The forms of the ETTR, and of the MTTF of a job, are those of Kokolis et al., arXiv 2410.21680 (HPCA 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from trainmon.lib import Seconds

FEW = 5
"""Fewer failures say little: only their interval is shown."""

SURE = 0.95
"""The probability of an interval: with each side, it misses 2.5 %."""

EXACT_TO = 200
"""With more events, the interval by Wilson and Hilferty differs from the exact one by less than 0.001%."""

Z = 1.959964
"""The normal quantile of 97.5 %."""


def poisson_interval(events: int) -> tuple[float, float]:
    """The exact interval (Garwood) of the expected number of events, of which so many were seen."""
    if events > EXACT_TO:
        sides = ((events, -Z), (events + 1, Z))
        low, high = (n * (1 - 1 / (9 * n) + z / (3 * math.sqrt(n))) ** 3 for n, z in sides)
        return low, high
    tail = (1 - SURE) / 2
    low = 0.0 if events == 0 else _solve(lambda mean: 1 - at_most(events - 1, mean) > tail, events)
    return low, _solve(lambda mean: at_most(events, mean) < tail, events)


def at_most(events: int, mean: float) -> float:
    """The probability of at most so many events, where this many are expected."""
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(events + 1))


def _solve(is_above: Callable[[float], bool], events: int) -> float:
    """The mean from which on that is true."""
    low, high = 0.0, events + 10 * math.sqrt(events + 1) + 10
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return high


def best_interval(mttf: Seconds, blocks: Seconds) -> Seconds:
    """The interval between two saves with which the least time is lost: Daly's higher order form of Young's."""
    if blocks >= 2 * mttf:
        return mttf
    part = math.sqrt(blocks / (2 * mttf))
    return math.sqrt(2 * blocks * mttf) * (1 + part / 3 + part * part / 9) - blocks


def expected_ettr(mttf: Seconds, blocks: Seconds, restart: Seconds, every: Seconds) -> float:
    """The expected ETTR with a save every so many seconds of training, without the time in the queue. Half an interval
    is lost with each failure. Valid while the interval is far below the MTTF."""
    return max(0.0, 1 - (restart + every / 2) / mttf) / (1 + blocks / every)
