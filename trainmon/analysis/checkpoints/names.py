"""What the numbers in the names of checkpoints count, and which steps no checkpoint has. Pure."""

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


def steps_at_risk(run: Run) -> int | None:
    """How many steps of a run a crash would lose now: none once it has finished. None if that is not known, or if the
    names of its checkpoints count epochs."""
    found = run.checkpoints
    if found is None:
        return None
    if run.verdict == "finished":
        return 0
    return None if names_count_steps(run, found) is False else found.at_risk(run.progress.step)
