"""Slurm as text: commands, parsers of their output, errors and reasons. Pure; Slurm 20.02 to 25."""

from __future__ import annotations

from trainmon.slurm.commands import QUEUE
from trainmon.slurm.reasons import end_reason, is_permanent, read_nodes, waiting_reason

__all__ = ["QUEUE", "end_reason", "is_permanent", "read_nodes", "waiting_reason"]
