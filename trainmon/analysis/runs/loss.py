"""Whether a loss is a number, and inside the usual band of its recent window. Pure.

The figures are those of a trainer that skips such steps by itself: OLMo-core's SkipStepOptimizer leaves out a step
whose loss is more than 6 standard deviations above the mean of the last 128, once half of these are known. Here the
median and the median absolute deviation stand for the two: a spike in the window does not widen the band for the next
one. Only upwards; a plateau is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds
from trainmon.model import WANDB, LossState, LossTrouble, Points, Run, WandbFile

WINDOW = 128
"""Values that make the band."""

ENOUGH = 64
"""With fewer values nothing is a spike: a loss falls and jumps when training begins."""

SIGMAS = 6.0

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Iglewicz and Hoaglin 1993)."""

MEAN_TO_SIGMA = 1.2533
"""The same for the mean absolute deviation, where more than half of the values are equal and their MAD is 0."""

AT_LEAST = 0.05
"""Of the median: the band of a loss that is flat, because it is averaged or rounded, is at least so wide. What is less
than 5% above is seen on no chart."""

LINGERS = 20
LINGERS_FOR: Seconds = 600.0
"""A spike is reported until this many points and seconds have followed: a poll brings a minute of steps at once."""

FILE_LAG: Seconds = 3_600.0
"""How far the file of a W&B client may be behind its run: it grows by 32 KiB at a time, about a hundred rows."""

JUDGED_AT_MOST = 200
"""Points of one poll that are judged, the last: three steps a second in a minute."""


class Band(NamedTuple):
    """The usual range of a loss."""

    low: float
    high: float
    """Nine of ten recent values lie between the two."""
    limit: float
    """A value above this is a spike."""


def band(recent: Sequence[float]) -> Band | None:
    """The usual band of the last WINDOW values; None while there are too few, or when all of them are zero."""
    known = sorted(filter(math.isfinite, recent[-WINDOW:]))
    if len(known) < ENOUGH:
        return None
    middle = median(known)
    off = sorted([abs(value - middle) for value in known])
    sigma = MAD_TO_SIGMA * median(off) or MEAN_TO_SIGMA * sum(off) / len(off)
    width = max(SIGMAS * sigma, AT_LEAST * abs(middle))
    if not width:
        return None
    edge = len(known) // 20
    return Band(known[edge], known[-1 - edge], middle + width)


def judge(value: float, usual: Band | None) -> LossState:
    """What a value is after others with this band."""
    if not math.isfinite(value):
        return "nan"
    return "spike" if usual is not None and value > usual.limit else "fine"


def follow(
    before: LossTrouble | None, recent: Sequence[float], key: str, points: Points, at: Instant
) -> LossTrouble | None:
    """What is odd about the loss once these points came after the recent ones; of a whole history the end is judged."""
    new = min(len(points.values), JUDGED_AT_MOST if recent else LINGERS)
    known = [*recent[-WINDOW:], *points.values[-WINDOW - new :]]
    trouble = before
    for back in range(new, 0, -1):
        trouble = _next(trouble, band(known[: len(known) - back]), key, points.values[-back], points.steps[-back], at)
    if trouble is not None and trouble.state == "nan" and trouble is not before:
        first = 1 + max((index for index, value in enumerate(points.values) if math.isfinite(value)), default=-1)
        # The first look at a history comes long after what it shows.
        when = at if recent or not math.isfinite(points.times[first]) else min(at, points.times[first])
        trouble = replace(trouble, step=points.steps[first], value=points.values[first], at=when)
    return passed(trouble, at)


def passed(trouble: LossTrouble | None, now: Instant) -> LossTrouble | None:
    """The spike, or None once it has been over for long enough."""
    is_over = trouble is not None and trouble.after >= LINGERS and now - trouble.at >= LINGERS_FOR
    return None if is_over else trouble


def trouble_of(run: Run, kind: LossState) -> LossTrouble | None:
    """The anomaly of its loss according to its log. W&B counts while the log has too few losses for a band, or has
    stopped while W&B goes on."""
    by_log, by_wandb, is_quiet = run.memory.trouble, wandb_trouble(run), run.progress.format == WANDB
    if by_log is not None and by_log.state == kind and not (is_quiet and by_wandb is not None):
        return by_log
    has_band = len(run.memory.losses) >= ENOUGH and not is_quiet
    return None if by_wandb is None or by_wandb.state != kind or (kind != "nan" and has_band) else by_wandb


def wandb_trouble(run: Run) -> LossTrouble | None:
    """The anomaly of its loss according to W&B's server, or else to the file of its W&B client."""
    wandb, file = run.wandb, run.wandb_file
    if wandb is not None and wandb.phase in ("active", "several", "ended") and (wandb.trouble or wandb.recent):
        return wandb.trouble and replace(wandb.trouble, source=wandb.source)
    if file is None or file.trouble is None or not _is_current(file, run):
        return None
    return replace(file.trouble, source=file.format)


def _is_current(file: WandbFile, run: Run) -> bool:
    """Whether the file is that of the attempt that trains, as far as its steps say."""
    at, newest = run.progress.at, file.logged_at
    if file.exit_code is not None or newest is None or newest < (run.memory.back_at or 0.0):
        return False
    return at is None or at - newest <= FILE_LAG


def _next(
    before: LossTrouble | None, usual: Band | None, key: str, value: float, step: float, at: Instant
) -> LossTrouble | None:
    """What is odd after one more point. `usual`: the band of those before it."""
    state, new = "fine" if before is None else before.state, judge(value, usual)
    if new == "fine":
        return replace(before, after=before.after + 1) if before is not None and state == "spike" else None
    if before is not None and state == new and not before.after:
        is_higher = state == "spike" and value > before.value
        return replace(before, value=value, step=step) if is_higher else before
    low, high = (None, None) if usual is None or new == "nan" else (usual.low, usual.high)
    return LossTrouble(state=new, key=key, value=value, step=step, at=at, low=low, high=high)
