"""The moment of an alert or a spike: its time, its sentence, and the log line of that time. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from trainmon.analysis.log_formats import parse_line
from trainmon.analysis.runs import trouble_of
from trainmon.lib import Instant, clean
from trainmon.model import Alert, Points, Run, State
from tui.style import count
from tui.views.alerts.rows import ORDERS
from tui.views.alerts.status import status_of

STEP = re.compile(r"\bat step ([\d,]+)|\bsince step ([\d,]+)")
"""Where a summary of a rule names the step at which it began."""


NEAR, LARGE = 50, 1_000
"""Steps between two lines of a trainer; from which on a number of a line is hardly anything but a step."""


class Moment(NamedTuple):
    """A time in the life of a run, and what happened then."""

    run: str
    at: Instant
    text: str
    step: int | None = None
    evidence: tuple[str, ...] = ()
    """Lines of the log that an alert has kept, newest last."""
    metric: str = ""
    """The metric whose chart it was opened from."""


def moment_of_alert(alert: Alert, state: State) -> Moment | None:
    """The beginning of an alert about a run."""
    if alert.run is None or alert.run not in state.runs:
        return None
    named = STEP.search(alert.summary)
    step = None if named is None else int((named[1] or named[2]).replace(",", "") or 0)
    return Moment(alert.run, alert.since, clean(f"{alert.rule}: {alert.summary}"), step, alert.evidence)


def moment_of_run(run: Run, state: State) -> Moment | None:
    """The beginning of its worst open alert, or its spike."""
    alerts = [one for one in state.alerts.values() if one.run == run.name and one.severity != "info" and one.is_open]
    for alert in sorted(alerts, key=lambda one: (status_of(one, state.at) == "pending", *ORDERS["worst"](one))):
        return moment_of_alert(alert, state)
    spike = trouble_of(run, "spike") or trouble_of(run, "nan")
    if spike is None:
        return None
    text = clean(f"the {spike.key} was {spike.value:.4g} at step {count(int(spike.step))}")
    return Moment(run.name, spike.at, text, int(spike.step))


def log_line(moment: Moment, run: Run) -> int | None:
    """The number of the log line of that moment: the line of its step, or the last line of the evidence; None if the
    log no longer has it."""
    log = run.log
    if log is None:
        return None
    found = line_of_step(log.lines, step_of(moment, run), is_earlier=moment.at < (run.memory.back_at or 0.0))
    for kept in reversed(moment.evidence if found is None else ()):
        ends = range(len(log.lines) - 1, -1, -1)
        found = next((i for i in ends if kept and log.lines[i].startswith(kept)), None)
        if found is not None:
            break
    return None if found is None else log.first + found


def step_of(moment: Moment, run: Run) -> int | None:
    """The step of that moment: by its alert, or by the usual time of a step."""
    progress = run.progress
    usual = progress.step_time_s or progress.cadence_s
    if moment.step is not None or progress.step is None or progress.at is None or not usual:
        return moment.step
    return round(progress.step - max(0.0, progress.at - moment.at) / usual)


def line_of_step(lines: Sequence[str], step: int | None, *, is_earlier: bool) -> int | None:
    """The index of the line with the nearest step. A restart repeats steps: `is_earlier` takes the line before it."""
    if step is None or step <= 0:
        return None
    read = ((index, parse_line(line)) for index, line in enumerate(lines))
    steps = [(index, one[1].step) for index, one in read if one is not None and one[1].step is not None]
    if not steps:  # a format that was learned
        return line_with_number(lines, step, is_earlier=is_earlier)
    numbers = [number for _, number in steps]
    usual = median(abs(later - one) for one, later in pairwise(numbers)) if len(numbers) > 1 else 0
    if step < min(numbers) - usual or (is_earlier and step > max(numbers) + usual):
        return None
    _, index = min((abs(number - step), index if is_earlier else -index) for index, number in steps)
    return abs(index)


def line_with_number(lines: Sequence[str], step: int, *, is_earlier: bool) -> int | None:
    """The index of the line that has this number; of a large one, also a number near it: not every step has a line."""
    for near in sorted(
        range(step - NEAR, step + NEAR + 1) if step >= LARGE else (step,), key=lambda one: abs(one - step)
    ):
        wanted = re.compile(rf"(?<![\d.,])(?<!\d[:/-])0*(?:{near}|{near:,})(?![\d:]|[.,/-]\d)")
        order = range(len(lines)) if is_earlier else range(len(lines) - 1, -1, -1)
        found = next((index for index in order if wanted.search(lines[index])), None)
        if found is not None:
            return found
    return None


def moment_of_curve(run: str, metric: str, points: Points) -> Moment | None:
    """The point of a curve that is no number, or else the one that is farthest from its median."""
    finite = [value for value in points.values if math.isfinite(value)]
    if len(points.values) < 2:
        return None
    odd = next((index for index, value in enumerate(points.values) if not math.isfinite(value)), None)
    middle = median(finite) if finite else math.nan
    index = max(range(len(finite)), key=lambda i: abs(finite[i] - middle)) if odd is None else odd
    value, step = points.values[index], int(points.steps[index])
    text = clean(f"{metric} was {value:.4g} at step {count(step)}")
    text += "" if odd is not None else f", the farthest from its median of {middle:.4g} in the chart"
    return Moment(run, points.times[index], text, step, metric=metric)
