"""Whether a loss is a number, and inside the usual band of its recent window. Pure.

The figures are those of a trainer that skips such steps by itself: OLMo-core's SkipStepOptimizer leaves out a step
whose loss is more than 6 standard deviations above the mean of the last 128, once half of these are known. Here the
median and the median absolute deviation stand for the two: a spike in the window does not widen the band for the next
one. Only upwards; a plateau is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trainmon.model_wandb import LossState

WINDOW = 128
"""Values that make the band."""

ENOUGH = 64
"""Without so many of them nothing is a spike: a loss falls and jumps when training begins."""

SIGMAS = 6.0

MAD_TO_SIGMA = 1.4826
"""Of numbers that are normally distributed (1 / 0.6745, Iglewicz and Hoaglin 1993)."""

MEAN_TO_SIGMA = 1.2533
"""The same for the mean absolute deviation, where more than half of the values are equal and their MAD is 0."""

AT_LEAST = 0.05
"""Of the median: the band of a loss that is flat, because it is averaged or rounded, is at least so wide. What is less
than 5 % above is seen on no chart."""


class Judged(NamedTuple):
    """What one value is, and between which the recent ones usually were."""

    state: LossState
    low: float | None = None
    high: float | None = None


class Band(NamedTuple):
    """What is usual."""

    low: float
    high: float
    """Nine of ten recent values lie between the two."""
    limit: float
    """What is above is a spike."""


def band(recent: Sequence[float]) -> Band | None:
    """The usual band of the last WINDOW values; None while there are too few, or when all of them are zero."""
    known = sorted(value for value in recent[-WINDOW:] if math.isfinite(value))
    if len(known) < ENOUGH:
        return None
    middle = _median(known)
    off = sorted(abs(value - middle) for value in known)
    sigma = MAD_TO_SIGMA * _median(off) or MEAN_TO_SIGMA * sum(off) / len(off)
    width = max(SIGMAS * sigma, AT_LEAST * abs(middle))
    if not width:
        return None
    edge = len(known) // 20
    return Band(known[edge], known[-1 - edge], middle + width)


def judge(recent: Sequence[float], value: float) -> Judged:
    """What a value is after these."""
    if not math.isfinite(value):
        return Judged("nan")
    usual = band(recent)
    if usual is None:
        return Judged("fine")
    return Judged("spike" if value > usual.limit else "fine", usual.low, usual.high)


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
