"""Retries: whether another attempt can help after one has ended, and how much of its budget is left. Pure."""

from __future__ import annotations

from trainmon.analysis.retries.budget import (
    DEFAULTS,
    STORM,
    Blame,
    blamed,
    by_run,
    fisher,
    history_of,
    in_vain,
    is_on_purpose,
    order_of,
    progressing,
    since_progress,
    suspects,
)
from trainmon.analysis.retries.decision import (
    RetryDecision,
    config_to_read,
    decide,
    needs_config_change,
    with_decisions,
)
from trainmon.analysis.retries.due import (
    ACTOR,
    TOO_LATE,
    Due,
    automatic,
    awaits_config,
    due,
    is_automatic,
    obstacle,
)

__all__ = [
    "ACTOR",
    "DEFAULTS",
    "STORM",
    "TOO_LATE",
    "Blame",
    "Due",
    "RetryDecision",
    "automatic",
    "awaits_config",
    "blamed",
    "by_run",
    "config_to_read",
    "decide",
    "due",
    "fisher",
    "history_of",
    "in_vain",
    "is_automatic",
    "is_on_purpose",
    "needs_config_change",
    "obstacle",
    "order_of",
    "progressing",
    "since_progress",
    "suspects",
    "with_decisions",
]
