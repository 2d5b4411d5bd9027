"""The last hour of a number as lines of text. The axis is fixed, so that flat 5% and flat 95% do not look alike.

plotext is imported at the first plot, because the import would delay the dashboard's first paint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, groupby
from typing import NamedTuple

from trainmon.analysis.explanation import GpuHour, worst
from trainmon.lib import Instant, clean, shorten
from trainmon.model import Series
from tui.charts.axes import Limits, Tick
from tui.style import Span, mib

# ---- the last hour of a number as lines of text ----------------------------------------------------------------------

HOUR = 3_600.0
LEAST_WIDTH, LEAST_HEIGHT = 26, 7


class Axis(NamedTuple):
    """The title, the fixed top and the ticks of a y axis."""

    metric: str
    title: str
    top: float
    ticks: tuple[tuple[float, str], ...]


Point = tuple[float, float]


def stretches(series: Series, now: Instant, count: int, span: float = HOUR) -> list[list[Point]]:
    """The means of at most `count` slices of the span, as stretches of (minutes, value) without gaps.

    Slices begin at fixed times, not at ages: an old slice keeps its mean, so a plot changes once a slice.
    """
    slice_s = span / count
    last = math.floor(now / slice_s)
    sums: dict[int, tuple[float, int]] = {}
    for offset, value in zip(series.offsets, series.values, strict=True):
        if -offset <= span and not math.isnan(value):
            index = math.floor((now + offset) / slice_s) - last
            total, number = sums.get(index, (0.0, 0))
            sums[index] = (total + value, number + 1)
    found: list[list[Point]] = []
    before = None
    for index in sorted(sums):
        if before is None or index - before > 2:
            found.append([])
        total, number = sums[index]
        found[-1].append((index * slice_s / 60.0, total / number))
        before = index
    return found


def plot(
    lines: Sequence[Sequence[Point]],
    x: Limits,
    y: Limits,
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    width: int,
    height: int,
    *,
    marker: str,
) -> list[str]:
    """A plot of these lines by plotext: at most `height` texts."""
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.theme("clear")
    plotext.plotsize(width, height)
    for line in lines:
        plotext.plot([at for at, _ in line], [value for _, value in line], marker=marker)
    plotext.xlim(*x)
    plotext.ylim(*y)
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    plotext.xticks([at for at, _ in x_ticks], [label for _, label in x_ticks])
    plotext.yticks([value for value, _ in y_ticks], [label for _, label in y_ticks])
    return plotext.uncolorize(plotext.build()).split("\n")[:height]  # type: ignore[no-any-return]


def picture(
    axis: Axis,
    value: str,
    series: Series,
    now: Instant,
    width: int,
    height: int,
    *,
    plain: bool = False,
    end: str = "now",
) -> list[tuple[Span, ...]]:
    """A title line with the current value, then the plot: `height` lines of `width` cells."""
    lines = stretches(series, now, max(12, 2 * (width - 8)))
    title = f"{axis.title} "[:width]
    head = (Span(title, "bold"), Span(value[: width - len(title)].ljust(width - len(title)), "accent"))
    if not lines:
        note = "no history yet".center(width)[:width]
        rest = [(Span(note if y == (height - 1) // 2 else " " * width, "dim"),) for y in range(height - 1)]
        return [head, *rest]
    marker = "*" if plain else "braille"
    x, x_ticks = Limits(-HOUR / 60, 0.0), ((-60.0, "-60m"), (-30.0, "-30m"), (0.0, end))
    texts = plot(lines, x, Limits(0.0, axis.top), x_ticks, axis.ticks, width, height - 1, marker=marker)
    return [head, *(coloured(text[:width].ljust(width)) for text in texts)]


def coloured(text: str) -> tuple[Span, ...]:
    """The curve is in the accent colour, the axes are dim."""
    pieces = groupby(text, lambda char: "accent" if char == "*" or "\u2801" <= char <= "\u28ff" else "dim")
    return tuple(Span("".join(chars), style) for style, chars in pieces)


def side_by_side(pictures: Sequence[Sequence[tuple[Span, ...]]], gap: int = 2) -> list[tuple[Span, ...]]:
    """Pictures of the same height, side by side."""
    rows = zip(*pictures, strict=True)
    return [(*first, *chain.from_iterable((Span(" " * gap), *part) for part in rest)) for first, *rest in rows]


# ---- plots of the stored last hour of a node's GPUs ------------------------------------------------------------------

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
