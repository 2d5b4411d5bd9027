"""The order of verdicts on the screen: the one that needs a person most comes first."""

from __future__ import annotations

from trainmon.model import Verdict
from tui.format import VERDICTS

WORST_FIRST: tuple[Verdict, ...] = (
    "dead", "hung", "diverged", "stalled", "data-stall", "unknown", "starting", "evaluating", "saving", "healthy",
    "queued", "idle", "stopped", "finished",
)  # fmt: skip

RANK: dict[Verdict, int] = {verdict: rank for rank, verdict in enumerate(WORST_FIRST)}

GOING = frozenset({"healthy", "evaluating", "saving"})
"""Of a run that has an end to wait for; for the others the verdict's word stands in that place."""


def style(verdict: Verdict) -> str:
    """The style of its word and symbol."""
    return VERDICTS[verdict][1]
