"""Charts of W&B metrics and plots of the last hour, as lines of spans. Pure."""

from __future__ import annotations

from tui.charts.axes import Limits
from tui.charts.chart import ATTEMPTS_AT_MOST, FRESH_AT_MOST, Charts, legend
from tui.charts.sparkline import HOUR, LEAST_HEIGHT, LEAST_WIDTH, Axis, gpu_hour_lines, picture, side_by_side, stretches
from tui.charts.values import (
    PHASES,
    file_notes,
    head,
    heartbeat,
    newest_row,
    notes,
    number,
    rows,
    source_spans,
    trouble,
    why_nothing,
)
from tui.charts.view import ChartGrid, View, chart_cells, layout

__all__ = [
    "ATTEMPTS_AT_MOST",
    "FRESH_AT_MOST",
    "HOUR",
    "LEAST_HEIGHT",
    "LEAST_WIDTH",
    "PHASES",
    "Axis",
    "ChartGrid",
    "Charts",
    "Limits",
    "View",
    "chart_cells",
    "file_notes",
    "gpu_hour_lines",
    "head",
    "heartbeat",
    "layout",
    "legend",
    "newest_row",
    "notes",
    "number",
    "picture",
    "rows",
    "side_by_side",
    "source_spans",
    "stretches",
    "trouble",
    "why_nothing",
]
