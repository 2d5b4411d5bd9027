"""nanotron's step lines. Steps are exact, the rest has three digits and a scale: `182K`, `480B`. Field order varies."""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import Format, StepLine, headed, number, positive, stripped

HEAD = re.compile(r"iteration:\s{0,8}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\s{0,4}\|")


def parse(line: str) -> StepLine | None:
    """Read a line of Nanotron."""
    if "Saving checkpoint at " in line:
        return StepLine(kind="save") if stripped(line).startswith("Saving checkpoint at /") else None
    if "iteration:" not in line or "time_per_iteration_ms:" not in line:
        return None
    if (found := headed(line, HEAD)) is None:
        return None
    head, named = found
    times = (named.get("time_per_iteration_ms"), named.get("elapsed_time_per_iteration_ms"))
    milliseconds = positive(number(times[0] or times[1]))
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]),
        loss=number(named.get("lm_loss") or named.get("loss")),
        grad_norm=number(named.get("grad_norm")),
        tokens_per_s=positive(number(named.get("tokens_per_sec"))),
        step_time_s=None if milliseconds is None else milliseconds / 1000,
        learning_rate=number(named.get("lr")),
    )


NANOTRON = Format("nanotron", r"iteration: *\d+ */ *\d+ *\|", parse)
