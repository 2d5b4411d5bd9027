"""Merges log lines into the progress of a run. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from msgspec.structs import asdict, replace

from trainmon.analysis.log_formats.line import StepLine
from trainmon.lib import Instant, Seconds
from trainmon.model import Bar, Progress, TrainingMetrics

INTERVALS = 15
"""Intervals that make the cadence: enough that an evaluation and a checkpoint among them do not move the median."""

QUIET = 10.0
QUIET_AT_LEAST: Seconds = 600.0
"""A format or a bar that has not advanced for QUIET times its cadence, and this long, gives way to another."""

RIVAL_LOSSES = 2
"""Losses without the followed bar after which the other bar is training's: a resumed run has another total."""

PART_OF_LOSS = "part of loss"

METRICS = frozenset(TrainingMetrics.__struct_fields__) - {"step"}


LASTING: Seconds = 300.0
"""A nameless bar that has counted for so long is training's, although no loss was logged yet: some log one every 500
steps. If the results of an evaluation follow, it was not."""

NEARLY = 0.8
"""A bar of an epoch was last seen at this part of its steps, or later, before it began again: one that is erased at its
end may never be seen full. A trainer that resumes begins again with more than half of them, or stopped earlier."""

DURATIONS = 5
"""How many durations of evaluations and saves are kept: their median is the usual duration."""


def advance(progress: Progress, name: str, line: StepLine, at: Instant) -> Progress:
    """Take in a line that format `name` parsed at `at`. Fields that the line lacks keep their values.

    An evaluation or save that ends with this line adds its duration. A target is dropped where a step is clearly above
    it, or where its counter begins again: it was something else's.
    """
    before, after = progress, _advanced(progress, name, line, at)
    if line.evaluation == "begins":
        after = replace(after, doing="eval", doing_at=at)
    total = line.target_step or math.inf
    had_ended = line.kind in ("bar", "rest") and before.target_step == total and (before.step or 0) >= NEARLY * total
    is_of_epoch = (
        before.counts == "epoch"
        or (before.counts == "run" and had_ended and (after.step or 0) <= total / 2 and line.epoch != line.step)
        or (line.is_inner and line.step == after.step)
    )
    has_ended = line.is_last or (before.counts == "nothing" and after.step == before.step)
    # some count one more than they announce
    is_misread = (after.step or 0) > 1.01 * (after.target_step or math.inf) + 1
    if is_of_epoch or is_misread:
        after = replace(after, target_step=None)
    if (counts := "nothing" if has_ended else "epoch" if is_of_epoch else "run") != after.counts:
        after = replace(after, counts=counts)
    if before.doing == after.doing:
        return after
    after = replace(after, busy_since=at if after.doing != "train" else None)
    if before.busy_since is None or at <= before.busy_since:
        return after
    name = "evals" if before.doing == "eval" else "saves"
    return replace(after, **{name: (*getattr(after, name), at - before.busy_since)[-DURATIONS:]})


def _advanced(progress: Progress, name: str, line: StepLine, at: Instant) -> Progress:
    match line.kind:
        case "eval" | "save":
            progress = _evaluated(progress) if line.evaluation == "ends" else progress
            return replace(progress, doing=line.kind, doing_at=at)
        case "note":
            return replace(progress, doing="train", doing_at=at)
        case "bar" if line.step is not None:
            return _bar(progress, name, line, at)
        case "epoch":
            return _begun(progress, line.epoch, at)
    if line.step is None:
        return _without_a_step(progress, name, line, at)
    if name != progress.format and _is_outranked(progress, line, at):
        return _filled(progress, line) if line.step == progress.step else progress
    return _counted(progress, name, line, at)


def _begun(progress: Progress, epoch: float | None, at: Instant) -> Progress:
    """An epoch begins where nothing counts steps. It times nothing before it is known how long one takes."""
    if progress.format is not None or epoch in (None, progress.step):
        return progress
    begun, number, intervals = progress.begun_at, int(epoch or 0), progress.intervals
    if begun is not None and at > begun and number > (progress.step or 0):
        intervals = (*intervals, at - begun)[-INTERVALS:]
    timed = {"at": at, "cadence_s": median(intervals)} if intervals else {}
    return replace(progress, step=number, begun_at=at, intervals=intervals, **timed)


def _is_outranked(progress: Progress, line: StepLine, at: Instant) -> bool:
    """Two formats may count differently (batches, optimizer steps): the first counts, or one with a loss."""
    if progress.format is None or progress.step is None or is_quiet(progress, at):
        return False
    if line.kind == "bar" or progress.bar is not None:
        return line.kind == "bar"
    return line.loss is None or progress.loss is not None


def is_quiet(progress: Progress, at: Instant) -> bool:
    """Whether the steps have not advanced for so long that another source of them may take over."""
    return progress.at is None or at - progress.at > max(QUIET_AT_LEAST, QUIET * (progress.cadence_s or 0.0))


def _counted(progress: Progress, name: str, line: StepLine, at: Instant) -> Progress:
    """A line with a step of the format that counts."""
    before, step = progress.step, line.step
    intervals: tuple[Seconds, ...]
    assert step is not None
    is_other_epoch = line.epoch is not None and progress.epoch is not None and line.epoch != progress.epoch
    if before == step and name == progress.format and not is_other_epoch:
        return _filled(progress, line)
    if line.target_step is None and (progress.target_step or step) < step:
        progress = replace(progress, target_step=None)  # it was an epoch's
    values = _values(line)
    # Megatron leaves the loss out of a line that only skips. DeepSpeed counts skips from the start.
    only_skips = name.startswith("megatron") and bool(line.skipped) and line.loss is None
    if before is None or step < before or name != progress.format:
        intervals, together = (), 0
    else:
        intervals, together = _intervals(progress, line, step - before, at)
    return replace(
        progress,
        **values,
        step=step,
        at=at,
        format=name,
        doing="train",
        doing_at=at if progress.doing != "train" else progress.doing_at,
        intervals=intervals,
        together=together,
        cadence_s=median(intervals) if intervals else None,
        skipping_since=(progress.skipping_since or at) if only_skips else None,
        skipped_in_row=_skipped(progress, name, line, step - (before or 0)),
        printed=_printed(line, values),
        bar=progress.bar if line.kind == "bar" or name == progress.format else None,
    )


def _skipped(progress: Progress, name: str, line: StepLine, gained: int) -> int:
    """How many iterations in a row were skipped, this line's included. DeepSpeed counts them from the start."""
    if line.skipped is None:
        return 0
    known = progress.skipped_in_row if gained > 0 else 0
    if name.startswith("megatron"):
        return known + line.skipped if line.loss is None and line.skipped > 0 else 0
    is_known = progress.skipped is not None and name == progress.format
    more = line.skipped - (progress.skipped or 0) if is_known else 0
    return known + more if more > 0 and more >= gained else 0


def _intervals(progress: Progress, line: StepLine, gained: int, at: Instant) -> tuple[tuple[Seconds, ...], int]:
    """The intervals with this line, and how many lines came at once: five a second that are read once a second are no
    step a second. Of those that were there at the first look, what they say of their own speed counts."""
    known, together = progress.intervals, progress.together
    if progress.at is not None and at > progress.at:
        return (*known, at - progress.at)[-INTERVALS:], 1
    if together and known:
        share = known[-1] * together / (together + 1)
        before, together = known[: max(0, len(known) - together)], together + 1
        return (*before, *[share] * min(together, INTERVALS))[-INTERVALS:], together
    printed = (line.step_time_s or 0.0) * gained
    return (*known, printed)[-INTERVALS:] if printed > 0 else known, 0


def _values(line: StepLine) -> dict[str, float | int]:
    return {name: value for name, value in asdict(line).items() if value is not None and name in METRICS}


def _filled(progress: Progress, line: StepLine) -> Progress:
    """Another line about the same step (another rank, another logger): only what was missing, the total of the losses,
    and a NaN."""
    replaces = line.kind in {"rest", "bar"} and not math.isnan(progress.loss or 0.0)
    known = () if replaces else progress.printed
    known = (*known, "loss") if line.is_part and PART_OF_LOSS in progress.printed else known
    new = {name: value for name, value in _values(line).items() if name not in known}
    if line.loss is not None and math.isnan(line.loss):
        new["loss"] = line.loss
    if not new:
        return progress
    return replace(progress, **new, printed=tuple(dict.fromkeys((*progress.printed, *_printed(line, new)))))


def _printed(line: StepLine, values: Iterable[str]) -> tuple[str, ...]:
    """The names of the values of a line; a loss that is one of several gives way to their total."""
    return tuple(PART_OF_LOSS if name == "loss" and line.is_part else name for name in values)


def _without_a_step(progress: Progress, name: str, line: StepLine, at: Instant) -> Progress:
    """A loss with no step beside it (HF Trainer): the bar has the step; without a bar the epoch shows progress."""
    values = _values(line)
    if progress.format is None:
        progress = replace(progress, step=None)  # an epoch that had only begun
    moved = line.epoch is not None and line.epoch != progress.epoch
    bar = progress.bar
    if bar is not None:
        bar = _with_a_loss(bar) if moved else bar
        values |= {} if bar.total is None or not bar.confirmed else {"target_step": bar.total}
        values |= {} if bar.step is None or not bar.confirmed else {"step": bar.step}
    intervals, cadence = progress.intervals, progress.cadence_s
    if moved and progress.step is None and progress.at is not None and at > progress.at:
        intervals = (*intervals, at - progress.at)[-INTERVALS:]
        cadence = median(intervals)
    return replace(
        progress,
        **values,
        at=at if moved else progress.at,
        format=progress.format or name,
        doing="train" if moved else progress.doing,
        doing_at=at if moved and progress.doing != "train" else progress.doing_at,
        printed=tuple(dict.fromkeys((*progress.printed, *values))),
        intervals=intervals,
        cadence_s=cadence,
        bar=bar,
    )


def _with_a_loss(bar: Bar) -> Bar:
    if bar.rival is None:
        return replace(bar, confirmed=True)
    if bar.rival_losses + 1 >= RIVAL_LOSSES:
        return Bar(total=bar.rival, confirmed=True, evaluations=bar.evaluations)
    return replace(bar, rival_losses=bar.rival_losses + 1)


def _bar(progress: Progress, name: str, line: StepLine, at: Instant) -> Progress:
    """A nameless bar: training's, or that of an evaluation or of preparing the data."""
    if progress.format not in (None, name) and _is_outranked(progress, line, at):
        return progress
    bar = progress.bar or Bar(total=line.target_step)
    if line.target_step in bar.evaluations and line.loss is None:
        return replace(progress, doing="eval", doing_at=at)
    if line.target_step != bar.total and (not bar.confirmed or line.loss is not None):
        bar = Bar(total=line.target_step, evaluations=bar.evaluations)
        progress = replace(progress, step=None, target_step=None)
    elif line.target_step != bar.total:
        return replace(progress, bar=replace(bar, rival=line.target_step), doing="eval", doing_at=at)
    else:
        bar = replace(bar, rival=None, rival_losses=0)
    confirmed = bar.confirmed or line.loss is not None
    is_full = line.step == line.target_step and (progress.bar is None or bar.step == line.step)  # whenever it is seen
    is_new = is_full or (line.step or 0) * (line.step_time_s or 0.0) < LASTING
    if not confirmed and is_new and (progress.loss is None or "loss" in progress.borrowed):
        return replace(progress, bar=replace(bar, step=line.step))
    # a full bar that no loss has confirmed was not training's
    target = line.target_step if confirmed or line.step != line.target_step else None
    counted = _counted(progress, name, line, at)
    return replace(counted, bar=replace(bar, confirmed=confirmed, step=None), target_step=target)


def _evaluated(progress: Progress) -> Progress:
    """After the results of an evaluation: the bar that was drawn to its end before them was that of the evaluation,
    unless a loss has confirmed it."""
    bar = progress.bar
    if bar is None or (bar.rival is None and (bar.confirmed or bar.total not in (bar.step, progress.step))):
        return progress
    known = tuple(dict.fromkeys((*bar.evaluations, bar.rival or bar.total or 0)))[-DURATIONS:]
    if bar.rival is not None:
        return replace(progress, bar=replace(bar, rival=None, rival_losses=0, evaluations=known))
    return replace(progress, step=None, target_step=None, bar=Bar(total=None, evaluations=known))


# ---- times in log lines ----------------------------------------------------------------------------------------------

STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")

BACKWARDS: Seconds = 60.0
"""A log whose times go back by more than this mixes time zones, and its times cannot be compared."""


STAMPED = 20
"""Lines at the end of a log of which one shows when it was last written."""


ZONE: Seconds = 900.0
"""Time zones differ by multiples of this."""

CLOSE: Seconds = 5.0
"""A last line with a time is written within this of its time, if the clock of its host is right."""

WHOLE: Seconds = 1.0
"""The times in a log are of whole seconds: a clock that differs by less is not corrected. That difference contains how
long the lines travelled, and would be another one at each read."""

TAIL: Seconds = 300.0
"""Lines without a time may follow the last one with a time by this much: a traceback, a save."""


def written(lines: Sequence[str], at: Instant, ahead: Seconds = 0.0) -> Sequence[Instant | None]:
    """When each line was written, by the times in them, whatever their time zone is; None where they do not say. `at`:
    when the last line was written, by our clock; `ahead`: how far that of their host is ahead. A watchdog that writes
    into the log of a run that hangs makes its file look new, and not its last step."""
    ahead = ahead if abs(ahead) >= WHOLE else 0.0
    stamps = [None if (found := _stamp(line)) is None else found - ahead for line in lines]
    known = [each for each in stamps if each is not None]
    if not known or any(earlier - later > BACKWARDS for earlier, later in pairwise(known)):
        return [None] * len(lines)
    zone = (at - known[-1] + CLOSE) // ZONE * ZONE
    later = at - known[-1] - zone
    is_near = later <= CLOSE or (stamps[-1] is None and later <= TAIL)
    if not is_near and not any(each is not None for each in stamps[-STAMPED:]):
        return [None] * len(lines)
    shift = zone if is_near else at - known[-1]
    return [None if each is None else min(at, each + shift) for each in stamps]


def since_head(head: str, lines: Sequence[str]) -> Seconds | None:
    """How much older the first dated line of a log is than its last lines. None where their times do not say."""
    first, last = _stamp(head), [at for line in lines[-STAMPED:] if (at := _stamp(line)) is not None]
    return last[-1] - first if first is not None and last and first <= last[-1] else None


def _stamp(line: str) -> float | None:
    found = STAMP.search(line[:200])
    try:
        return None if found is None else datetime.fromisoformat(found[0] + "+00:00").timestamp()
    except ValueError:
        return None
