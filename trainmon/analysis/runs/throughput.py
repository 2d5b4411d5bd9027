"""How fast a run is against how fast it usually is, and a GPU's numbers over the last minutes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds
from trainmon.model import MINUTES, RECENT_MINUTES, SLOW_AT_MOST, Gpu, GpuPace, Pace, Progress, Run

MINUTE: Seconds = 60.0

WARM_UP: Seconds = 300.0
"""The first steps of an attempt compile, fill caches and find their workers: five minutes of them say nothing."""

ENOUGH = 20
"""Minutes that make a usual pace."""

READINGS = 60
"""Of one minute, the last."""

PLAINLY = 0.9
"""Of its usual pace: what is below is not taken for usual until it lasts."""

HALF_LIFE: Seconds = 60.0
"""Of a GPU's sample in its mean: an evaluation of seconds hardly moves it."""

GAP: Seconds = 60.0
"""Without a sample for so long its mean begins anew."""

COUNTED = "steps/s"
SAID_WITHIN: Seconds = 600.0

SAID = (("tokens_per_s", "tokens/s"), ("samples_per_s", "samples/s"), ("step_time_s", COUNTED))


class Rate(NamedTuple):
    """One reading; without a value where steps must be counted over time."""

    measure: str
    value: float | None


def advance(pace: Pace, progress: Progress, nodes: int, *, anew: bool) -> Pace:
    """Take in a step. `anew`: it is the first of an attempt, or the first after a long silence."""
    at = progress.at
    if at is None or at == pace.read_at:
        return pace
    rate = _rate(pace, progress, at)
    if rate.measure != pace.measure or nodes != pace.nodes:
        pace = Pace(measure=rate.measure, nodes=nodes, warm_at=at + WARM_UP, said_at=at)
    if anew or at < (pace.read_at or at):  # or the clock was set back
        pace = replace(pace, warm_at=at + WARM_UP, since=None, readings=(), recent=(), closed_at=None)
    pace = replace(pace, read_at=at, said_at=pace.said_at if rate.value is None else at)
    if at < (pace.warm_at or 0.0) or progress.doing != "train":
        return replace(pace, since=None, readings=())
    return _minute(pace, progress, rate, at)


def _rate(pace: Pace, progress: Progress, at: Instant) -> Rate:
    """What its lines say of its speed, in the measure that it has; else its steps are counted. Not every line says it:
    another measure is taken when it was not said for long."""
    said: dict[str, float] = {}
    for name, measure in SAID:
        value = getattr(progress, name)
        is_told = name in progress.said or name in progress.borrowed
        if is_told and value is not None and math.isfinite(value) and value > 0:
            said[measure] = 1 / value if name == "step_time_s" else value
    if pace.measure in said:
        return Rate(pace.measure, said[pace.measure])
    if pace.measure == COUNTED or (pace.measure and at - (pace.said_at or at) <= SAID_WITHIN):
        return Rate(pace.measure, None)
    return next((Rate(measure, value) for measure, value in said.items()), Rate(COUNTED, None))


def _minute(pace: Pace, progress: Progress, rate: Rate, at: Instant) -> Pace:
    """One more reading of this minute; the minute is closed when it is over."""
    if pace.since is None:
        return replace(pace, since=at, step=progress.step, readings=())
    readings = pace.readings if rate.value is None else (*pace.readings, rate.value)[-READINGS:]
    elapsed = at - pace.since
    if elapsed < MINUTE:
        return replace(pace, readings=readings)
    value = median(readings) if readings else _counted(pace, progress, elapsed)
    pace = replace(pace, since=at, step=progress.step, readings=())
    return pace if value is None else _closed(pace, value, at)


def _counted(pace: Pace, progress: Progress, elapsed: Seconds) -> float | None:
    """Steps over time, where no line says its speed; nothing where it evaluated or saved meanwhile."""
    if pace.measure != COUNTED or progress.step is None or pace.step is None or progress.step <= pace.step:
        return None
    is_interrupted = progress.doing_at is not None and pace.since is not None and progress.doing_at >= pace.since
    return None if is_interrupted else (progress.step - pace.step) / elapsed


def _closed(pace: Pace, value: float, at: Instant) -> Pace:
    recent = (*pace.recent, value)[-RECENT_MINUTES:]
    usual: tuple[float, ...] = pace.usual
    slow: tuple[float, ...] = ()
    if pace.usual_rate is not None and value < PLAINLY * pace.usual_rate:
        slow = (*pace.slow, value)
        if len(slow) >= SLOW_AT_MOST:
            usual, slow = slow, ()
    else:
        usual = (*usual, value)[-MINUTES:]
    rate = median(usual) if len(usual) >= ENOUGH else None
    return replace(pace, recent=recent, closed_at=at, usual=usual, slow=slow, usual_rate=rate)


def gpus(before: Sequence[GpuPace], seen: Sequence[Gpu], at: Instant) -> tuple[GpuPace, ...]:
    """The GPUs of a node after one more sample of each."""
    known = {one.index: one for one in before}
    return tuple(_gpu(known.get(gpu.index), gpu, at) for gpu in seen if gpu.state == "ok")


def _gpu(before: GpuPace | None, gpu: Gpu, at: Instant) -> GpuPace:
    if before is None or at < before.at or at - before.at > GAP:
        return GpuPace(
            index=gpu.index,
            since=at,
            at=at,
            utilization_pct=gpu.utilization_pct,
            power_w=gpu.power_w,
            sm_clock_mhz=gpu.sm_clock_mhz,
            temperature_c=gpu.temperature_c,
        )
    weight = 1.0 - 0.5 ** ((at - before.at) / HALF_LIFE)
    return GpuPace(
        index=gpu.index,
        since=before.since,
        at=at,
        utilization_pct=_mixed(before.utilization_pct, gpu.utilization_pct, weight),
        power_w=_mixed(before.power_w, gpu.power_w, weight),
        sm_clock_mhz=_mixed(before.sm_clock_mhz, gpu.sm_clock_mhz, weight),
        temperature_c=_mixed(before.temperature_c, gpu.temperature_c, weight),
    )


def _mixed(before: float | None, value: float | None, weight: float) -> float | None:
    return value if before is None or value is None else before + weight * (value - before)


SCALES = ("loss-scale", "loss_scale", "train/loss_scale", "loss scale")
"""As Megatron and others name it in W&B."""


def loss_scale(run: Run) -> float | None:
    """Its loss scale now, by its log or by W&B."""
    if run.progress.loss_scale is not None:
        return run.progress.loss_scale
    current = None if run.wandb is None else run.wandb.current
    values = () if current is None else (current.summary.get(name) for name in SCALES)
    return next((value for value in values if isinstance(value, float)), None)
