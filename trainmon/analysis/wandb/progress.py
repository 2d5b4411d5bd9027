"""The progress of a run by W&B, where its log shows nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, repeat
from statistics import median

from msgspec.structs import replace

from trainmon.analysis.log_formats import StepLine
from trainmon.analysis.log_formats.progress import INTERVALS, is_quiet
from trainmon.analysis.wandb import metric_names
from trainmon.lib import Instant
from trainmon.model import WANDB, Points, Progress, Wandb, WandbRun

THINNED = 5_000
"""A first history of more points than these was thinned by the server: its gaps are not those of the logging."""


def stepped_at(before: Wandb | None, run: WandbRun, at: Instant) -> Instant | None:
    """When the step last advanced, by our clock: as the run says of its last row, which lies between two looks."""
    step, old, logged = metric_names.step_of(run), None if before is None else before.current, run.logged_at
    if step is None:
        return None
    if before is None or old is None or old.path != run.path:
        return min(at, logged or run.heartbeat_at or run.created_at or at)
    known = metric_names.step_of(old)
    if known is not None and step <= known:
        return before.stepped_at
    return at if logged is None else max(min(logged, at), before.polled_at or logged)


def polled(progress: Progress, before: Wandb | None, wandb: Wandb, at: Instant) -> Progress:
    """Take in the latest values of the current run."""
    run = wandb.current
    if run is None:
        return progress
    step, old = metric_names.step_of(run), None if before is None else before.current
    is_other = old is not None and old.path != run.path
    if is_other:
        # The values of an earlier attempt end with it: its NaN is not a NaN of the next one.
        progress = replace(progress, **dict.fromkeys(progress.borrowed), borrowed=())
    if step is not None and _counts(progress, step, wandb.stepped_at, at):
        is_reset = progress.format != WANDB or step < (progress.step or 0) or is_other
        progress = replace(
            progress,
            step=step,
            at=wandb.stepped_at if step != progress.step or is_reset else progress.at,
            format=WANDB,
            doing="train",
            busy_since=None,
            skipping_since=None,
            intervals=() if is_reset else progress.intervals,
            cadence_s=None if is_reset else progress.cadence_s,
        )
    loss = run.summary.get(metric_names.loss_of(wandb.keys) or "")
    values = {
        "loss": loss if isinstance(loss, (int, float)) else metric_names.value_of(run, "loss"),
        "grad_norm": metric_names.value_of(run, "grad_norm"),
        "tokens_per_s": metric_names.value_of(run, "throughput"),
        "learning_rate": metric_names.value_of(run, "learning_rate"),
    }
    return _borrowing(progress, values)


def _counts(progress: Progress, step: int, stepped: Instant | None, at: Instant) -> bool:
    """Whether W&B's steps are the run's: no log counts them, or the log has stopped while W&B's steps go on."""
    if progress.format in (None, WANDB) or progress.at is None:
        return True
    has_advanced = stepped is not None and stepped > progress.at and step > (progress.step or 0)
    return has_advanced and is_quiet(progress, at)


def _borrowing(progress: Progress, values: dict[str, float | None]) -> Progress:
    """Take the values that no log shows."""
    new = {
        name: value
        for name, value in values.items()
        if value is not None
        and (progress.format == WANDB or name in progress.borrowed or getattr(progress, name) is None)
    }
    borrowed = tuple(dict.fromkeys((*progress.borrowed, *new)))
    return replace(progress, **new, borrowed=borrowed) if new else progress


def grew(
    progress: Progress,
    run: WandbRun,
    points: Points,
    stepped: Instant | None,
    *,
    first: bool,
    numbers: Sequence[float] = (),
) -> Progress:
    """Learn the pace from rows that came. `first`: they are the first of this run, and may be thinned. `numbers`: those
    of the rows, where they are known."""
    gaps = _gaps(points.times)
    if metric_names.step_of(run) == run.step and gaps:  # its counter counts steps, and not calls of log()
        gained = _gaps(points.steps)
        paces = [gap / more for gap, more in zip(gaps, gained, strict=True) if gap > 0 and more > 0]
        progress = _borrowing(progress, {"step_time_s": median(paces) if paces else None})
    if progress.format != WANDB:
        return progress
    if first and stepped is not None and progress.at is not None:
        progress = replace(progress, at=min(progress.at, stepped))
    known = [gap / rows for gap, rows in zip(gaps, _gaps(numbers) or repeat(1.0), strict=False) if gap > 0]
    if not known or (first and len(points.times) > THINNED):
        return progress
    intervals = (*progress.intervals, *known)[-INTERVALS:]
    return replace(progress, intervals=intervals, cadence_s=median(intervals))


def _gaps(column: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(column[-INTERVALS - 1 :])]


def counts(progress: Progress) -> bool:
    """Whether W&B counts the steps."""
    return progress.format == WANDB


def without_wandb_steps(progress: Progress, line: StepLine) -> Progress:
    """The progress as a line of the log finds it: where that has a step, what W&B has counted gives way."""
    if not counts(progress) or line.step is None:
        return progress
    return replace(progress, format=None, intervals=(), cadence_s=None)


def without_own_borrowed(progress: Progress) -> Progress:
    """The progress without borrowed values that the log prints itself."""
    borrowed = tuple(name for name in progress.borrowed if name not in progress.printed)
    return progress if borrowed == progress.borrowed else replace(progress, borrowed=borrowed)
