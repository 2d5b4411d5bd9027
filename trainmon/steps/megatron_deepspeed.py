"""Megatron-DeepSpeed's step lines, as BLOOM's training printed them: seconds, and samples per second."""

from __future__ import annotations

from trainmon.steps.line import StepLine
from trainmon.steps.megatron import is_deepspeed_fork, step_line


class MegatronDeepSpeed:
    name = "megatron-deepspeed"
    keep = r"iteration +\d+/ *\d+ *\|"

    def parse(self, line: str) -> StepLine | None:
        return step_line(line) if is_deepspeed_fork(line) else None
