"""Megatron-LM's step lines, old and new, and those of its forks that time in milliseconds (AMD Primus, MindSpeed).

The loss is left out of the line when it is NaN (training_log appends it only if it is >= 0), so a NaN shows as an
absence: no loss field, and not every iteration skipped. `number of nan iterations:   0` is not a NaN.
"""

from __future__ import annotations

import math
import re

from trainmon.analysis.log_formats.line import StepLine, fields, number, positive, stripped, whole

HEAD = re.compile(r"iteration\s{1,12}(\d{1,12})/\s{0,12}(\d{1,12})\s{0,4}\|")
EVAL = re.compile(r"(?:validation|valid|test)\b.{0,60} loss at (?:iteration \d|the end of training)")
SAVING = re.compile(r"saving checkpoint at iteration\s{1,12}\d")
SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration\s{1,12}\d")

LOSSES = ("lm loss", "loss", "mlm loss", "lm_loss")
SIDE_LOSSES = re.compile(
    r"loss scale|load_balancing_loss|seq_load_balancing_loss|global_load_balancing_loss|z_loss|mtp_\d+ loss"
)
"""Fields with loss in their name that stay in the line while the loss itself is NaN."""


class Megatron:
    name = "megatron"
    keep = r"iteration +\d+/ *\d+ *\||saving checkpoint at iteration|successfully saved checkpoint"

    def parse(self, line: str) -> StepLine | None:
        if "iteration" not in line:
            return None
        if "elapsed time per iteration (ms):" in line or "number of skipped iterations:" in line:
            return None if is_deepspeed_fork(line) else step_line(line)
        return busy_line(line)


def is_deepspeed_fork(line: str) -> bool:
    """Whether a step line is Megatron-DeepSpeed's: in seconds, or with its samples per second."""
    return "elapsed time per iteration (s):" in line or "| samples per second:" in line


def step_line(line: str) -> StepLine | None:
    """Read a step line of Megatron or a fork of it."""
    body = stripped(line)
    head = HEAD.match(body)
    if head is None:
        return None
    named = fields(body[head.end() :])
    skipped, nans = whole(named.get("number of skipped iterations")), whole(named.get("number of nan iterations"))
    step_time = _step_time(named)
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]) or None,
        loss=math.nan if nans else _loss(named, skipped),
        grad_norm=number(named.get("grad norm")),
        samples_per_s=positive(number(named.get("samples per second"))) or _samples_per_s(named, step_time),
        step_time_s=step_time,
        learning_rate=number(named.get("learning rate")),
        skipped=skipped,
        nan_iterations=nans,
        loss_scale=positive(number(named.get("loss scale"))),
    )


def busy_line(line: str) -> StepLine | None:
    """Read a line about evaluation or a checkpoint."""
    if "loss at" in line:
        return StepLine(kind="eval") if EVAL.match(stripped(line)) else None
    if "saving checkpoint" in line:
        return StepLine(kind="save") if SAVING.match(stripped(line)) else None
    if "successfully saved" in line:
        return StepLine(kind="note") if SAVED.match(stripped(line)) else None
    return None


def _loss(named: dict[str, str], skipped: int | None) -> float | None:
    for name in LOSSES:
        if name in named:
            return number(named[name])
    others = [name for name in named if "loss" in name and not SIDE_LOSSES.fullmatch(name)]
    if others:
        return number(named[others[0]])
    is_whole = skipped is not None  # the loss stands before this field: a line that has it was not cut off
    return math.nan if is_whole and not skipped else None


def _step_time(named: dict[str, str]) -> float | None:
    """`2701.3/2712.7` is AMD Primus: this one, and the mean."""
    milliseconds = named.get("elapsed time per iteration (ms)")
    if milliseconds is not None:
        value = positive(number(milliseconds.partition("/")[0]))
        return None if value is None else value / 1000
    seconds = named.get("elapsed time per iteration (s)")
    return None if seconds is None else positive(number(seconds.partition("/")[0]))


def _samples_per_s(named: dict[str, str], step_time: float | None) -> float | None:
    batch = number(named.get("global batch size"))
    return None if batch is None or step_time is None else positive(batch / step_time)


class MegatronDeepSpeed:
    name = "megatron-deepspeed"
    keep = r"iteration +\d+/ *\d+ *\|"

    def parse(self, line: str) -> StepLine | None:
        return step_line(line) if is_deepspeed_fork(line) else None
