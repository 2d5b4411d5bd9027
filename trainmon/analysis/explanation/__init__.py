"""Explains one attempt: what ended it, what happened around it, and what can be traced back. Pure."""

from trainmon.analysis.explanation.explain import (
    AttemptRecords,
    Change,
    Check,
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
from trainmon.analysis.explanation.page import PageRow, Section, page
from trainmon.analysis.explanation.timeline import GpuHour, Moment, Read, gpu_hour, period, start_format, worst

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
