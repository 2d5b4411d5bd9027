"""Slurm as text: the commands it is asked with, what it answers, and what its errors mean. Pure; 20.02 to 25."""

from __future__ import annotations

from trainmon.slurm.commands import QUEUE
from trainmon.slurm.parse_nodes import read_nodes
from trainmon.slurm.reasons import ended, is_for_good, waits

__all__ = ["QUEUE", "ended", "is_for_good", "read_nodes", "waits"]
