"""Explains one attempt: what ended it, what happened around it, and what can be traced back. Pure."""

from __future__ import annotations

from trainmon.analysis.explanation.explain import (
    AttemptRecords,
    Change,
    ContextLine,
    Explanation,
    Resume,
    brief,
    explain,
    neighbours,
    resume_of,
    short_id,
    short_name,
    with_state,
)
from trainmon.analysis.explanation.page import page
from trainmon.analysis.explanation.rows import GpuHour, PageRow, Read, Section, gpu_hour, worst
from trainmon.analysis.explanation.smell_test import Check
from trainmon.analysis.explanation.timeline import Moment, period, start_format

__all__ = [
    "AttemptRecords",
    "Change",
    "Check",
    "ContextLine",
    "Explanation",
    "GpuHour",
    "Moment",
    "PageRow",
    "Read",
    "Resume",
    "Section",
    "brief",
    "explain",
    "gpu_hour",
    "neighbours",
    "page",
    "period",
    "resume_of",
    "short_id",
    "short_name",
    "start_format",
    "with_state",
    "worst",
]
