"""Hugging Face Trainer (and TRL, LLaMA-Factory, axolotl, ms-swift on it): a dict of numbers, and a nameless bar.

The dict has the loss and no step; the bar, on standard error, has the step and no loss; `advance` joins them. Version
4 prints numbers, version 5 strings. Evaluation draws a nameless bar too: its kind is `bar` until a dict confirms it.
"""

from __future__ import annotations

import math
import re

from trainmon.analysis.log_formats.line import FASTEST, TIMES, Format, StepLine, number, postfix, step_time, stripped

PAIR = re.compile(r"'([^'{}]{1,80})': ('[^'{}]{0,80}'|[^,'{}\[\]]{1,40})(?=[,}])")
BAR = re.compile(r"(?:Train:\s{1,8})?\d{1,3}%\|[^|]{0,400}\|\s{0,12}(\d{1,12})/(\d{1,12}(?:\.\d{1,6})?) " + TIMES)
SAVING = re.compile(r"Saving (?:model )?checkpoint to \S")
EVAL = re.compile(r"\*{3,8} Running (?:Evaluation|Prediction|Test) ")


def parse(line: str) -> StepLine | None:
    """Read a line of the Hugging Face Trainer."""
    if "': " in line and "{'" in line:
        return _with_dict(line)
    if "%|" in line:
        return _bar(stripped(line))
    if "Saving " in line:
        return StepLine(kind="save") if SAVING.match(stripped(line)) else None
    return StepLine(kind="eval") if "Running " in line and EVAL.match(stripped(line)) else None


def _with_dict(line: str) -> StepLine | None:
    """A dict alone, or glued to the bar that it interrupted."""
    if "loss': " not in line and "_runtime': " not in line:
        return None
    body = stripped(line)
    start = body.find("{'")
    parsed, before = _dict(body[start:]), body[:start]
    if parsed is None or not before:
        return parsed
    bar = _bar(before)
    if bar is None or bar.step is None or not before.endswith("]"):
        return None
    if parsed.kind != "train" or parsed.step is not None:
        return parsed
    return StepLine(
        kind="bar",
        step=bar.step,
        target_step=bar.target_step,
        loss=parsed.loss,
        grad_norm=parsed.grad_norm,
        samples_per_s=parsed.samples_per_s,
        step_time_s=bar.step_time_s,
        learning_rate=parsed.learning_rate,
        epoch=parsed.epoch,
    )


def _dict(text: str) -> StepLine | None:
    if not text.endswith("}") or "{" in text[1:]:
        return None
    named = dict(PAIR.findall(text))
    if "train_runtime" in named and "loss" not in named:
        return StepLine(
            is_last=True,
            samples_per_s=number(named.get("train_samples_per_second")),
            epoch=number(named.get("epoch")),
        )
    own = next((name for name in named if name.lower() in {"loss", "total_loss", "train_loss"}), None)
    if own is None:
        is_result = "eval_runtime" in named or "eval_loss" in named
        return StepLine(kind="eval", evaluation="ends") if is_result else None
    if "epoch" not in named and "learning_rate" not in named:
        return None
    loss, grad_norm = number(named[own]), number(named.get("grad_norm"))
    if loss == 0 and grad_norm is not None and math.isnan(grad_norm):
        loss = math.nan  # the Trainer logs a NaN loss as 0 (logging_nan_inf_filter); its gradient gives it away
    step, _, target = named.get("global_step/max_steps", "").strip("'").partition("/")
    return StepLine(
        step=int(step) if step.isdecimal() else None,
        target_step=int(target) if target.isdecimal() else None,
        loss=loss,
        grad_norm=grad_norm,
        learning_rate=number(named.get("learning_rate")),
        epoch=number(named.get("epoch")),
    )


def _bar(body: str) -> StepLine | None:
    found = BAR.match(body)
    if found is None:
        return None
    seconds = step_time(found[3], found[4])
    if seconds is not None and seconds < 1 / FASTEST:
        return None
    shown = postfix(body, found.end())
    return StepLine(
        kind="bar",
        step=int(found[1]),
        target_step=math.ceil(float(found[2])) or None,  # a batch count that was divided: 312.5 ends with step 313
        loss=number(shown.get("loss")),
        learning_rate=number(shown.get("learning_rate")),
        step_time_s=seconds,
    )


HF_TRAINER = Format("hf-trainer", r"it/s|s/it|'loss': |'train_runtime': |'eval_runtime': ", parse)
