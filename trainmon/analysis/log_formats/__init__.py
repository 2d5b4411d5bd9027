"""Log formats: step lines of each trainer, merged into progress. Pure."""

from __future__ import annotations

from trainmon.analysis.log_formats.custom import COUNTS, NUMBERS, named_regex
from trainmon.analysis.log_formats.line import Format, StepLine, stripped
from trainmon.analysis.log_formats.registry import FORMATS, KEEP, parse_line
from trainmon.analysis.log_formats.timestamps import before_the_end

__all__ = [
    "COUNTS",
    "FORMATS",
    "KEEP",
    "NUMBERS",
    "Format",
    "StepLine",
    "before_the_end",
    "named_regex",
    "parse_line",
    "stripped",
]
