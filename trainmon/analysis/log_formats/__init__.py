"""Log formats: step lines of each trainer, merged into progress. Pure."""

from __future__ import annotations

from trainmon.analysis.log_formats.line import Format, StepLine, stripped
from trainmon.analysis.log_formats.progress import advance, before_the_end
from trainmon.analysis.log_formats.registry import BARS, COUNTS, FORMATS, KEEP, NUMBERS, keep, named_regex, parse_line

__all__ = [
    "BARS",
    "COUNTS",
    "FORMATS",
    "KEEP",
    "NUMBERS",
    "Format",
    "StepLine",
    "advance",
    "before_the_end",
    "keep",
    "named_regex",
    "parse_line",
    "stripped",
]
