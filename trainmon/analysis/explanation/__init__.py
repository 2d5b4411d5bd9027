"""Explains one attempt: what ended it, what happened around it, and what can be traced back. Pure."""

from __future__ import annotations

from trainmon.analysis.explanation.explain import (
    AttemptRecords,
    Change,
    ContextLine,
    Explanation,
    Resume,
    explain,
    neighbours,
    short_id,
    with_state,
)
from trainmon.analysis.explanation.page import PageRow, Section, page
from trainmon.analysis.explanation.smell_test import Check
from trainmon.analysis.explanation.timeline import Moment, period

__all__ = [
    "AttemptRecords",
    "Change",
    "Check",
    "ContextLine",
    "Explanation",
    "Moment",
    "PageRow",
    "Resume",
    "Section",
    "explain",
    "neighbours",
    "page",
    "period",
    "short_id",
    "with_state",
]
