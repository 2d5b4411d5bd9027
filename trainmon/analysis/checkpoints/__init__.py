"""Checkpoints: layouts, states, what a trainer resumes from, and what evaluators wrote about them. Pure."""

from trainmon.analysis.checkpoints.evals import (
    PLACEHOLDER,
    PLACEHOLDERS,
    describe,
    eval_logs,
    is_eval_log,
    read_results,
    together,
)
from trainmon.analysis.checkpoints.layouts import last_checkpoint, names_count_steps, since, steps_at_risk

__all__ = [
    "PLACEHOLDER",
    "PLACEHOLDERS",
    "describe",
    "eval_logs",
    "is_eval_log",
    "last_checkpoint",
    "names_count_steps",
    "read_results",
    "since",
    "steps_at_risk",
    "together",
]
