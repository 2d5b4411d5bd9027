"""The order of verdicts on the screen: the one that needs a person most comes first."""

from __future__ import annotations

from trainmon.model import Verdict
from tui.format import VERDICTS

WORST_FIRST: tuple[Verdict, ...] = (
    "dead", "hung", "diverged", "stalled", "data-stall", "unknown", "starting", "evaluating", "saving", "healthy",
    "queued", "idle", "stopped", "finished",
)  # fmt: skip

GOING = frozenset({"healthy", "evaluating", "saving"})
"""Of a run that has an end to wait for; for the others the verdict's word stands in that place."""

RANK: dict[Verdict, int] = {
    verdict: WORST_FIRST.index("healthy" if verdict in GOING else verdict) for verdict in WORST_FIRST
}
"""What rows are sorted by: a run that saves is as well as one that steps, and does not jump at each save."""


def style(verdict: Verdict) -> str:
    """The style of its word and symbol."""
    return VERDICTS[verdict][1]
