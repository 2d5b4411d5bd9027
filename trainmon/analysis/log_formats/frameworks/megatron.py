"""Megatron-LM's step lines, old and new, and those of its forks that time in milliseconds (AMD Primus, MindSpeed).

The loss is left out of the line when it is NaN (training_log appends it only if it is >= 0), so a NaN shows as an
absence: no loss field, and not every iteration skipped. `number of nan iterations:   0` is not a NaN.
"""

from __future__ import annotations

import math
import re

from trainmon.analysis.log_formats.line import Format, StepLine, headed, number, positive, stripped, whole

HEAD = re.compile(r"iteration\s{1,12}(\d{1,12})/\s{0,12}(\d{1,12})\s{0,4}\|")
EVAL = re.compile(r"(?:validation|valid|test)\b.{0,60} loss at (?:iteration \d|the end of training)")
SAVING = re.compile(r"saving checkpoint at iteration\s{1,12}\d")
SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration\s{1,12}\d")

LOSSES = ("lm loss", "loss", "mlm loss", "lm_loss")
SIDE_LOSSES = re.compile(
    r"loss scale|load_balancing_loss|seq_load_balancing_loss|global_load_balancing_loss|z_loss|mtp_\d+ loss"
)
"""Fields with loss in their name that stay in the line while the loss itself is NaN."""


def parse(line: str) -> StepLine | None:
    """Read a line of Megatron."""
    if "iteration" not in line:
        return None
    if "elapsed time per iteration (ms):" in line or "number of skipped iterations:" in line:
        return None if is_deepspeed_fork(line) else step_line(line)
    if "loss at" in line:
        return StepLine(kind="eval") if EVAL.match(stripped(line)) else None
    if "saving checkpoint" in line:
        return StepLine(kind="save") if SAVING.match(stripped(line)) else None
    is_saved = "successfully saved" in line and SAVED.match(stripped(line))
    return StepLine(kind="note") if is_saved else None


def is_deepspeed_fork(line: str) -> bool:
    """Whether a step line is Megatron-DeepSpeed's: in seconds, or with its samples per second."""
    return "elapsed time per iteration (s):" in line or "| samples per second:" in line


def step_line(line: str) -> StepLine | None:
    """Read a step line of Megatron or a fork of it."""
    if (found := headed(line, HEAD)) is None:
        return None
    head, named = found
    skipped, nans = whole(named.get("number of skipped iterations")), whole(named.get("number of nan iterations"))
    step_time, batch = _step_time(named), number(named.get("global batch size"))
    counted = None if step_time is None or batch is None else batch / step_time
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]) or None,
        loss=math.nan if nans else _loss(named, skipped),
        grad_norm=number(named.get("grad norm")),
        samples_per_s=positive(number(named.get("samples per second"))) or positive(counted),
        step_time_s=step_time,
        learning_rate=number(named.get("learning rate")),
        skipped=skipped,
        nan_iterations=nans,
        loss_scale=positive(number(named.get("loss scale"))),
    )


def _loss(named: dict[str, str], skipped: int | None) -> float | None:
    others = (name for name in named if "loss" in name and not SIDE_LOSSES.fullmatch(name))
    name = next((name for name in (*LOSSES, *others) if name in named), None)
    if name is not None:
        return number(named[name])
    return math.nan if skipped == 0 else None  # the loss stands before that field: a line that has it is complete


def _step_time(named: dict[str, str]) -> float | None:
    """`2701.3/2712.7` is AMD Primus: this one, and the mean."""
    unit, scale = ("ms", 1000) if "elapsed time per iteration (ms)" in named else ("s", 1)
    value = positive(number(named.get(f"elapsed time per iteration ({unit})", "").partition("/")[0]))
    return None if value is None else value / scale


def parse_deepspeed_fork(line: str) -> StepLine | None:
    """Read a step line of Megatron-DeepSpeed."""
    return step_line(line) if is_deepspeed_fork(line) else None


MEGATRON = Format(
    "megatron", r"iteration +\d+/ *\d+ *\||saving checkpoint at iteration|successfully saved checkpoint", parse
)
MEGATRON_DEEPSPEED = Format("megatron-deepspeed", r"iteration +\d+/ *\d+ *\|", parse_deepspeed_fork)
