"""NeMo 2's ProgressPrinter. It counts from 0, as the names of its checkpoints do: `iteration 0/99` is the first of 100.

`iteration` starts again in each epoch and after a resume; `global_step` does not, and is what is taken.
"""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import Format, StepLine, headed, number, positive, stripped, whole

HEAD = re.compile(r"Training epoch (\d{1,9}), iteration (\d{1,12})/(\d{1,12}) \|")
EVAL = re.compile(r"(?:Validation|Testing) (?:epoch \d{1,9}, )?iteration \d{1,12}/\d{1,12}\b")
STEP_TIMES = ("train_step_timing in s", "train_step_timing", "step_time")


def parse(line: str) -> StepLine | None:
    """Read a line of NeMo."""
    if ", iteration " not in line and " iteration " not in line:
        return None
    if "Training epoch " not in line:
        is_eval = "Validation" in line or "Testing" in line
        return StepLine(kind="eval") if is_eval and EVAL.match(stripped(line)) else None
    if (found := headed(line, HEAD)) is None:
        return None
    head, named = found
    if "global_step" not in named and "lr" not in named:
        return None
    done = int(head[2])
    global_step = whole(named.get("global_step"))
    return StepLine(
        step=done if global_step is None else global_step,
        target_step=int(head[3]) if global_step in (None, done) else None,
        loss=number(named.get("reduced_train_loss") or named.get("loss")),
        grad_norm=number(named.get("grad_norm") or named.get("gradient_norm")),
        step_time_s=next((positive(number(named[name])) for name in STEP_TIMES if name in named), None),
        learning_rate=number(named.get("lr")),
        epoch=float(head[1]),
    )


NEMO = Format("nemo", r"Training epoch \d+, iteration \d+/\d+|Validation iteration", parse)
