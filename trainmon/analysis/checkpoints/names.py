"""What the numbers in the names of checkpoints count. Pure."""

from __future__ import annotations

from trainmon.model import Checkpoints, Run

FASTER = 0.25
"""Names of checkpoints count steps if the steps of an interval take at least this share of its time. A run may have
become faster since, and lines of a log come as often as steps, or more seldom."""


def names_count_steps(run: Run, known: Checkpoints) -> bool | None:
    """Whether the numbers in the names of checkpoints are steps. Some are epochs. None if that is not known yet."""
    every_steps, every_s, cadence_s = known.every_steps, known.every_s, run.progress.cadence_s
    if not every_steps or not every_s or not cadence_s:
        return None
    return every_steps * cadence_s >= FASTER * every_s
