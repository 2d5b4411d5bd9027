"""IDEFICS (m4): `iteration:  4875/500000   0% | elapsed time: 19:29:30 | per_token_loss: 3.3900 | …`.

Its elapsed time is that of the whole job, so it says nothing of one step.
"""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import Format, StepLine, fields, number, stripped

HEAD = re.compile(r"iteration:\s{0,12}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\s{1,8}\d{1,3}(?:\.\d{1,4})?% \|")


def parse(line: str) -> StepLine | None:
    """Read a line of Idefics."""
    if "iteration:" not in line or "| per_token_loss" not in line:
        return None
    body = stripped(line)
    head = HEAD.match(body)
    if head is None:
        return None
    named = fields(body[head.end() :])
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]) or None,
        loss=number(named.get("per_token_loss")),
        grad_norm=number(named.get("grad_norm")),
        learning_rate=number(named.get("lr")),
    )


IDEFICS = Format("idefics", r"iteration: *\d+/\d+ +[\d.]+% \|", parse)
