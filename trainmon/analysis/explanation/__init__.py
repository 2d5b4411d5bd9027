"""Explains one attempt: what ended it, what happened around it, and what can be traced back. Reports on many: where the
GPU hours went, and how often they fail. Pure."""

from trainmon.analysis.explanation.explain import (
    AttemptRecords,
    Change,
    Check,
    ContextLine,
    Explanation,
    Resume,
    brief,
    changes,
    explain,
    neighbours,
    resume_of,
    short_id,
    short_name,
    with_state,
)
from trainmon.analysis.explanation.hours import UNSEEN_FOR, gpu_hours_text
from trainmon.analysis.explanation.page import PageRow, Section, page
from trainmon.analysis.explanation.report import Grouping, Report, report, report_object, report_page, report_sentence
from trainmon.analysis.explanation.timeline import GpuHour, Moment, Read, gpu_hour, period, start_format, worst

__all__ = [
    "UNSEEN_FOR",
    "AttemptRecords",
    "Change",
    "Check",
    "ContextLine",
    "Explanation",
    "GpuHour",
    "Grouping",
    "Moment",
    "PageRow",
    "Read",
    "Report",
    "Resume",
    "Section",
    "brief",
    "changes",
    "explain",
    "gpu_hour",
    "gpu_hours_text",
    "neighbours",
    "page",
    "period",
    "report",
    "report_object",
    "report_page",
    "report_sentence",
    "resume_of",
    "short_id",
    "short_name",
    "start_format",
    "with_state",
    "worst",
]
