"""The nouns of what is remembered of a run and of its GPUs, because one State alone does not show it."""

from __future__ import annotations

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.wandb import LossTrouble


class GpuPace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU over the last minutes: a mean in which what is new weighs most. One sample says little of a GPU."""

    index: int
    since: Instant
    """Since when it is followed without a gap."""
    at: Instant
    utilization_pct: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a run is, minute by minute, and how fast it usually is."""

    measure: str = ""
    """What is measured: `tokens/s`, `samples/s`, `steps/s`."""
    said_at: Instant | None = None
    """When a line last said it; counted steps need none."""
    nodes: int = 0
    """On how many nodes: on others it has another pace."""
    warm_at: Instant | None = None
    """From when on it counts: the first minutes of an attempt compile, and fill caches."""
    read_at: Instant | None = None
    """When the last step that was taken in was taken."""
    since: Instant | None = None
    """When the minute that is being read began, and at which step."""
    step: int | None = None
    readings: tuple[float, ...] = ()
    """Of the minute that is being read."""
    recent: tuple[float, ...] = ()
    """Medians of the last minutes, at most RECENT."""
    closed_at: Instant | None = None
    """When the last of them ended."""
    usual: tuple[float, ...] = ()
    """Medians of a day's minutes, at most MINUTES; without those in `slow`."""
    slow: tuple[float, ...] = ()
    """The minutes since it has been plainly slower than usual. After SLOW_AT_MOST of them, that is its usual."""
    usual_rate: float | None = None
    """The median of `usual`; null while too little is known."""


class RunMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one run."""

    pace: Pace = Pace()
    step: int | None = None
    """The step that was taken in last."""
    at: Instant | None = None
    cadence_s: Seconds | None = None
    """Its usual interval before that step: one that comes after a long silence widens it."""
    losses: tuple[float, ...] = ()
    """The recent losses of its log, for their usual band."""
    trouble: LossTrouble | None = None
    """What was odd about them last."""
    scale_peak: float | None = None
    """The highest loss scale of this attempt: a constant 1 (bf16) is no floor that was reached."""
    overflows: int = 0
    """Lines that told of a skipped step, since the last step that they do not belong to: they say no step."""
    skipped_in_row: int = 0
    """How many steps in a row were skipped, by such lines."""
    back_at: Instant | None = None
    """When its steps last went back, and from where: it was restarted from a checkpoint."""
    back_from: int | None = None
    stopped: str | None = None
    """Where it stood when a person had ended it: the step, and the job. While it stands there, it is stopped."""
    stopped_by: str = ""
    """Who ended it, and how: the switch is taken back, and what was asked for here is forgotten after an hour."""
    read_to: int = 0
    """The number of the log's line that is read next."""
    exiting_at: Instant | None = None
    """When its log last said that it ends by itself, and in which line."""
    exiting: str = ""
    floor_at: Instant | None = None
    """When its log last said that its loss scale cannot sink further, and in which line."""
    floor: str = ""


RECENT = 10
MINUTES = 1_440
SLOW_AT_MOST = 720
"""Half a day: a pace that lasts so long is no trouble any more, but another training."""
