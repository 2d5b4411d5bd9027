"""KempnerForge's metrics line, and its NaN lines: a step with a NaN prints no metrics, only a warning on rank 0."""

from __future__ import annotations

import math
import re

from trainmon.analysis.log_formats.line import Format, StepLine, fields, number, positive, stripped

STEP = re.compile(r"\[step (\d{1,12})\] (?=loss=|eval/)")
NAN = re.compile(
    r"NaN/Inf (?:loss|detected on another rank) at step (\d{1,12}) \(consecutive=(\d{1,9}), total=\d{1,9}[,)]"
)


def parse(line: str) -> StepLine | None:
    """Read a line of KempnerForge."""
    if "[step " in line:
        return _metrics(stripped(line))
    found = NAN.match(stripped(line)) if "NaN/Inf " in line else None
    return None if found is None else StepLine(step=int(found[1]), loss=math.nan, nan_iterations=int(found[2]))


def _metrics(body: str) -> StepLine | None:
    found = STEP.match(body)
    if found is None:
        return None
    named = fields(body[found.end() :], after="=")
    if "loss" not in named:
        return StepLine(kind="eval")
    return StepLine(
        step=int(found[1]),
        loss=number(named["loss"]),
        grad_norm=number(named.get("grad_norm")),
        tokens_per_s=positive(number(named.get("tok/s"))),
        step_time_s=positive(number(named.get("step_time", "").removesuffix("s"))),
        learning_rate=number(named.get("lr")),
        nan_iterations=0,
    )


KEMPNERFORGE = Format("kempnerforge", r"\[step \d+\]|NaN/Inf ", parse)
