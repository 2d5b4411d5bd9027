"""Log formats: step lines of each trainer, merged into progress. Pure."""

from __future__ import annotations

from trainmon.analysis.log_formats.custom import NAMES, custom_format, named_regex
from trainmon.analysis.log_formats.line import Format, StepLine, stripped
from trainmon.analysis.log_formats.progress import advance, before_the_end
from trainmon.analysis.log_formats.read import LEARNED, read_line
from trainmon.analysis.log_formats.registry import BARS, FORMATS, KEEP, keep, parse_line
from trainmon.analysis.log_formats.report import LogReport, ReadLine, config_block, report, summary

__all__ = [
    "BARS",
    "FORMATS",
    "KEEP",
    "LEARNED",
    "NAMES",
    "Format",
    "LogReport",
    "ReadLine",
    "StepLine",
    "advance",
    "before_the_end",
    "config_block",
    "custom_format",
    "keep",
    "named_regex",
    "parse_line",
    "read_line",
    "report",
    "stripped",
    "summary",
]
