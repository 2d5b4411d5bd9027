"""Plots of the stored last hour of a node's GPUs. Pure."""

from __future__ import annotations

from trainmon.analysis.explanation import GpuHour, worst
from trainmon.lib import clean, shorten
from tui.charts.sparkline import LEAST_HEIGHT, LEAST_WIDTH, Axis, picture, side_by_side
from tui.style import Span, mib

HEIGHT = LEAST_HEIGHT + 2
MOST_PLOTS = 4

TITLES = {"temperature": "hottest °C", "utilization": "idlest %", "power": "least power W", "memory": "most memory"}
TOPS = {"temperature": 110.0, "utilization": 100.0}
"""Fixed tops; power and memory have their highest value."""


def gpu_hour_lines(hour: GpuHour, width: int, *, plain: bool = False) -> list[tuple[Span, ...]]:
    """A heading, then as many plots side by side as fit."""
    count = max(1, min(MOST_PLOTS, width // (LEAST_WIDTH + 2)))
    each = (width - 2 * count) // count
    pictures = []
    for metric in [name for name in TITLES if hour.metrics.get(name)][:count]:
        series = worst(hour, metric)
        highest = max(series.values, default=1.0)
        top = TOPS.get(metric, max(1.0, highest))
        ticks = tuple((at, mib(int(at)) if metric == "memory" else f"{at:.0f}") for at in (0.0, top / 2, top))
        last = series.values[-1] if series.values else 0.0
        value = mib(int(last)) if metric == "memory" else f"{last:.0f}"
        axis = Axis(metric, TITLES[metric], top, ticks)
        pictures.append(picture(axis, value, series, hour.ended_at, each, HEIGHT, plain=plain, end="end"))
    head = (Span(shorten(clean(f"{hour.node}, last hour"), width), "head"),)
    return [head, *side_by_side(pictures)] if pictures else []
