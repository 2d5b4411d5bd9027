"""Megatron-DeepSpeed's step lines, as BLOOM's training printed them: seconds, and samples per second."""

from __future__ import annotations

from trainmon.steps.line import StepLine
from trainmon.steps.megatron import step_line


class MegatronDeepSpeed:
    name = "megatron-deepspeed"
    keep = r"iteration +\d+/ *\d+ *\|"

    def parse(self, line: str) -> StepLine | None:
        if "elapsed time per iteration (s):" not in line and "| samples per second:" not in line:
            return None
        return step_line(line)
