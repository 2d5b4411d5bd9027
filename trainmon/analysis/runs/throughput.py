"""The throughput of a run: now and usually; and a GPU's averages over the last minutes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from trainmon.analysis.wandb import client_file
from trainmon.lib import MINUTE, Instant, Seconds
from trainmon.model import MINUTES, RECENT_MINUTES, SLOW_AT_MOST, Gpu, GpuAverage, Progress, Run, Throughput

WARM_UP: Seconds = 300.0
"""The first steps of an attempt compile and fill caches. Five minutes of them are ignored."""

ENOUGH = 20
"""Minutes needed before the usual throughput is known."""

READINGS = 60
"""The newest readings of one minute that are kept."""

PLAINLY = 0.9
"""A throughput below this share of the usual one counts as usual only after SLOW_AT_MOST minutes."""

HALF_LIFE: Seconds = 60.0
"""Half-life of a sample in a GPU's average: an evaluation of a few seconds hardly moves it."""

GAP: Seconds = 60.0
"""After this long without a sample, the average starts again."""

COUNTED = "steps/s"
PRINTED_WITHIN: Seconds = 600.0

UNITS = (("tokens_per_s", "tokens/s"), ("samples_per_s", "samples/s"), ("step_time_s", COUNTED))


def advance(known: Throughput, progress: Progress, nodes: int, *, reset: bool) -> Throughput:
    """Take in a step. `reset`: it is the first step of an attempt, or the first after a long silence."""
    at = progress.at
    if at is None or at == known.read_at:
        return known
    measure, value = _rate(known, progress, at)
    if measure != known.measure or nodes != known.nodes:
        known = Throughput(measure=measure, nodes=nodes, warm_at=at + WARM_UP, printed_at=at)
    if reset or at < (known.read_at or at):  # or the clock was set back
        known = replace(known, warm_at=at + WARM_UP, since=None, readings=(), recent=(), closed_at=None)
    known = replace(known, read_at=at, printed_at=known.printed_at if value is None else at)
    if at < (known.warm_at or 0.0) or progress.doing != "train":
        return replace(known, since=None, readings=())
    if known.since is None:
        return replace(known, since=at, step=progress.step, readings=())
    readings = known.readings if value is None else (*known.readings, value)[-READINGS:]
    elapsed = at - known.since
    if elapsed < MINUTE:
        return replace(known, readings=readings)
    value = median(readings) if readings else _counted(known, progress, elapsed)
    known = replace(known, since=at, step=progress.step, readings=())
    return known if value is None else _minute_ended(known, value, at)


def _rate(known: Throughput, progress: Progress, at: Instant) -> tuple[str, float | None]:
    """The measure, and its value if the log line shows one; otherwise steps are counted over time. Not every line
    shows the speed: another measure is used only after PRINTED_WITHIN without one."""
    printed = {*progress.printed, *progress.borrowed}
    values = {measure: getattr(progress, name) or 0.0 for name, measure in UNITS if name in printed}
    rates: dict[str, float] = {
        measure: 1 / value if measure == COUNTED else value
        for measure, value in values.items()
        if math.isfinite(value) and value > 0
    }
    if known.measure in rates:
        return known.measure, rates[known.measure]
    if known.measure == COUNTED or (known.measure and at - (known.printed_at or at) <= PRINTED_WITHIN):
        return known.measure, None
    return next(iter(rates.items()), (COUNTED, None))


def rate_source(run: Run, measure: str) -> str:
    """What shows this measure, if not the log: W&B, or the format of a file of metrics."""
    names = {name for name, unit in UNITS if unit == measure}
    return client_file.source_of(run) if names & {*run.progress.borrowed} else ""


def _counted(known: Throughput, progress: Progress, elapsed: Seconds) -> float | None:
    """Steps over time, if no line shows a speed; None if the run evaluated or saved meanwhile."""
    if known.measure != COUNTED or progress.step is None or known.step is None or progress.step <= known.step:
        return None
    is_interrupted = progress.doing_at is not None and known.since is not None and progress.doing_at >= known.since
    return None if is_interrupted else (progress.step - known.step) / elapsed


def _minute_ended(known: Throughput, value: float, at: Instant) -> Throughput:
    usual: tuple[float, ...] = known.usual
    slow: tuple[float, ...] = ()
    if known.usual_rate is not None and value < PLAINLY * known.usual_rate:
        slow = (*known.slow, value)
        if len(slow) >= SLOW_AT_MOST:
            usual, slow = slow, ()
    else:
        usual = (*usual, value)[-MINUTES:]
    rate = median(usual) if len(usual) >= ENOUGH else None
    recent = (*known.recent, value)[-RECENT_MINUTES:]
    return replace(known, recent=recent, closed_at=at, usual=usual, slow=slow, usual_rate=rate)


def gpus(before: Sequence[GpuAverage], seen: Sequence[Gpu], at: Instant) -> tuple[GpuAverage, ...]:
    """The averages of a node's GPUs after one more sample of each."""
    known = {one.index: one for one in before}
    return tuple(_gpu(known.get(gpu.index), gpu, at) for gpu in seen if gpu.state == "ok")


def _gpu(before: GpuAverage | None, gpu: Gpu, at: Instant) -> GpuAverage:
    if before is None or at < before.at or at - before.at > GAP:
        before = GpuAverage(index=gpu.index, since=at, at=at)
    weight = 1.0 - 0.5 ** ((at - before.at) / HALF_LIFE)
    return GpuAverage(
        index=gpu.index,
        since=before.since,
        at=at,
        utilization_pct=_average(before.utilization_pct, gpu.utilization_pct, weight),
        power_w=_average(before.power_w, gpu.power_w, weight),
        sm_clock_mhz=_average(before.sm_clock_mhz, gpu.sm_clock_mhz, weight),
        temperature_c=_average(before.temperature_c, gpu.temperature_c, weight),
    )


def _average(old: float | None, value: float | None, weight: float) -> float | None:
    """The moving average after one more value. A missing value ends it."""
    return value if old is None or value is None else old + weight * (value - old)


SCALES = ("loss-scale", "loss_scale", "train/loss_scale", "loss scale")
"""Names of the loss scale in W&B, in Megatron and others."""


def loss_scale(run: Run) -> float | None:
    """The current loss scale, from the log or from W&B."""
    if run.progress.loss_scale is not None:
        return run.progress.loss_scale
    current = None if run.wandb is None else run.wandb.current
    values = () if current is None else (current.summary.get(name) for name in SCALES)
    return next((value for value in values if isinstance(value, float)), None)
