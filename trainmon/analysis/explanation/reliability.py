"""How often attempts fail and how sure that is, and how often to save: Poisson, Young and Daly. Pure.

The forms of the ETTR, and of the MTTF of a job, are those of Kokolis et al., arXiv 2410.21680 (HPCA 2025).
"""

from __future__ import annotations

import math

from trainmon.lib import Seconds

TAIL = 0.025
"""The probability that an interval of 95% misses on each side."""

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
    return _mean_of(events - 1, 1 - TAIL) if events else 0.0, _mean_of(events, TAIL)


def at_most(events: int, mean: float) -> float:
    """The probability of at most so many events, where this many are expected."""
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(events + 1))


def _mean_of(events: int, probability: float) -> float:
    """The mean with which at most so many events have that probability."""
    low, high = 0.0, events + 10 * math.sqrt(events + 1) + 10
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(events, middle) > probability else (low, middle)
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
