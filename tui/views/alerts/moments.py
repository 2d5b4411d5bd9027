"""The moment of an alert or a spike: its time, its sentence, and the log line of that time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainmon.analysis.runs import trouble_of
from trainmon.lib import Instant, clean
from trainmon.model import Alert, Run, State
from tui.style import count
from tui.views.alerts.rows import ORDERS
from tui.views.alerts.status import status_of

STEP = re.compile(r"\bat step ([\d,]+)|\bsince step ([\d,]+)")
"""Where a summary of a rule names the step at which it began."""

NEAR = 50
"""A trainer may print every tenth or fiftieth step."""


class Moment(NamedTuple):
    """A time in the life of a run, and what happened then."""

    run: str
    at: Instant
    text: str
    step: int | None = None
    evidence: tuple[str, ...] = ()
    """Lines of the log that an alert has kept, newest last."""


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
    for step in steps_near(moment, run):
        wanted = re.compile(rf"(?<![\d.,])0*(?:{step}|{step:,})(?![\d]|[.,]\d)")
        found = next((index for index, line in enumerate(log.lines) if wanted.search(line)), None)
        if found is not None:
            return log.first + found
    for kept in reversed(moment.evidence):
        found = next((i for i in range(len(log.lines) - 1, -1, -1) if kept and log.lines[i].startswith(kept)), None)
        if found is not None:
            return log.first + found
    return None


def steps_near(moment: Moment, run: Run) -> Iterator[int]:
    """The step of that moment, by its alert or by the usual time of a step; then the steps around it."""
    progress, step = run.progress, moment.step
    usual = progress.step_time_s or progress.cadence_s
    if step is None and progress.step is not None and progress.at is not None and usual:
        step = round(progress.step - max(0.0, progress.at - moment.at) / usual)
    if step is not None and step > 0:
        yield step
        for away in range(1, NEAR + 1):
            yield step - away
            yield step + away
