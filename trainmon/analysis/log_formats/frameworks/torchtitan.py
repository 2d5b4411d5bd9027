"""torchtitan's step lines. Every rank may print them; `tps` is tokens per second of one device.

Older lines have no gradient norm, and forks print `step: 640/644 = 99.3789%`.
"""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import Format, StepLine, number, positive, stripped

STEP = re.compile(
    r"step:\s{0,8}(\d{1,12})(?:\s{0,4}/\s{0,4}(\d{1,12})(?:\s{0,4}=\s{0,4}[\d.]{1,12}%)?)?\s{1,8}"
    r"(?:[\w/]{1,40}:\s{0,8}\S{1,40}\s{1,8}){0,3}?loss:\s{0,8}(\S{1,24})(?=\s|$)"
)
EVAL = re.compile(r"validate step:\s{0,8}\d{1,12}\s{1,8}loss:")
NAMED = re.compile(r"\b(grad_norm|tps|lr|time_metrics/end_to_end\(s\)):\s{0,8}([^\s|]{1,24})")
SAVING = (
    "Saving the checkpoint",
    "Saving a full checkpoint",
    "Saving a model only checkpoint",
    "Saving a model weights",
)


def parse(line: str) -> StepLine | None:
    """Read a line of TorchTitan."""
    if "step:" not in line or "loss:" not in line:
        return _saving(line) if "checkpoint" in line else None
    body = stripped(line)
    found = STEP.match(body)
    if found is None:
        return StepLine(kind="eval") if EVAL.match(body) else None
    loss = number(found[3])
    named = dict(NAMED.findall(body, found.end()))
    if loss is None or named.keys() <= {"lr"}:  # others name a loss and a learning rate, too
        return None
    return StepLine(
        step=int(found[1]),
        target_step=int(found[2]) if found[2] else None,
        loss=loss,
        grad_norm=number(named.get("grad_norm")),
        tokens_per_s=positive(number(named.get("tps"))),
        learning_rate=number(named.get("lr")),
    )


def _saving(line: str) -> StepLine | None:
    body = stripped(line)
    if body.startswith("Finished saving the checkpoint"):
        return StepLine(kind="note")
    return StepLine(kind="save") if body.startswith(SAVING) else None


TORCHTITAN = Format("torchtitan", r"step:.{1,200}loss:|Saving the checkpoint|Finished saving the checkpoint", parse)
