"""Log formats: step lines of each trainer, merged into progress. Pure."""

from trainmon.analysis.log_formats.cells import cells, cells_by, cells_read, named, steps_by, suggested, template_by
from trainmon.analysis.log_formats.custom import NAMES, custom_format, named_regex
from trainmon.analysis.log_formats.frameworks import BARS, FORMATS
from trainmon.analysis.log_formats.line import Format, StepLine, stripped
from trainmon.analysis.log_formats.progress import advance, since_head, written
from trainmon.analysis.log_formats.read import (
    EXAMPLE,
    KEEP,
    LEARNED,
    LogReport,
    ReadLine,
    config_block,
    keep,
    parse_line,
    plain,
    read_line,
    report,
    summary,
)
from trainmon.analysis.log_formats.template import Cell

__all__ = [
    "BARS",
    "EXAMPLE",
    "FORMATS",
    "KEEP",
    "LEARNED",
    "NAMES",
    "Cell",
    "Format",
    "LogReport",
    "ReadLine",
    "StepLine",
    "advance",
    "cells",
    "cells_by",
    "cells_read",
    "config_block",
    "custom_format",
    "keep",
    "named",
    "named_regex",
    "parse_line",
    "plain",
    "read_line",
    "report",
    "since_head",
    "steps_by",
    "stripped",
    "suggested",
    "summary",
    "template_by",
    "written",
]
