"""IDEFICS (m4): `iteration:  4875/500000   0% | elapsed time: 19:29:30 | per_token_loss: 3.3900 | …`.

Its elapsed time is that of the whole job, so it says nothing of one step.
"""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import Format, StepLine, headed, number

HEAD = re.compile(r"iteration:\s{0,12}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\s{1,8}\d{1,3}(?:\.\d{1,4})?% \|")


def parse(line: str) -> StepLine | None:
    """Read a line of Idefics."""
    if "iteration:" not in line or "| per_token_loss" not in line:
        return None
    if (found := headed(line, HEAD)) is None:
        return None
    head, named = found
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]) or None,
        loss=number(named.get("per_token_loss")),
        grad_norm=number(named.get("grad_norm")),
        learning_rate=number(named.get("lr")),
    )


IDEFICS = Format("idefics", r"iteration: *\d+/\d+ +[\d.]+% \|", parse)
