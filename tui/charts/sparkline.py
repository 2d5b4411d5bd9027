"""The last hour of a number as lines of text, on an axis that never moves: flat 5 % and flat 95 % must not look alike.

plotext draws; it is imported at the first plot, because the dashboard must paint before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmon.lib import Instant
from trainmon.model import Series
from tui.style import Span

HOUR = 3_600.0
LEAST_WIDTH, LEAST_HEIGHT = 26, 7


class Axis(NamedTuple):
    """What a plot shows: the title, the fixed top of its axis, and the ticks."""

    metric: str
    title: str
    top: float
    ticks: tuple[tuple[float, str], ...]


Point = tuple[float, float]


def stretches(series: Series, now: Instant, count: int, span: float = HOUR) -> list[list[Point]]:
    """The means of at most `count` slices of the span, as unbroken stretches of (minutes, value).

    Slices are cut at fixed times, not at ages: an old slice keeps its mean, so a plot moves once a slice, not always.
    """
    slice_s = span / count
    last = math.floor(now / slice_s)
    sums: dict[int, tuple[float, int]] = {}
    for offset, value in zip(series.offsets, series.values, strict=True):
        if -offset <= span and not math.isnan(value):
            place = math.floor((now + offset) / slice_s) - last
            total, seen = sums.get(place, (0.0, 0))
            sums[place] = (total + value, seen + 1)
    found: list[list[Point]] = []
    before = None
    for place in sorted(sums):
        if before is None or place - before > 2:
            found.append([])
        total, seen = sums[place]
        found[-1].append((place * slice_s / 60.0, total / seen))
        before = place
    return found


def plot(axis: Axis, lines: Sequence[Sequence[Point]], width: int, height: int, *, plain: bool) -> list[str]:
    """The plot as `height` texts of `width` cells; `plain` draws with ASCII."""
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.theme("clear")
    plotext.plotsize(width, height)
    for line in lines:
        plotext.plot([x for x, _ in line], [y for _, y in line], marker="*" if plain else "braille")
    if not lines:
        plotext.plot([0], [-axis.top], marker=" ")
    plotext.xlim(-HOUR / 60, 0)
    plotext.ylim(0, axis.top)
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    plotext.xticks([-60, -30, 0], ["-60m", "-30m", "now"])
    plotext.yticks([value for value, _ in axis.ticks], [label for _, label in axis.ticks])
    texts = plotext.uncolorize(plotext.build()).split("\n")
    return [text[:width].ljust(width) for text in texts[:height]]


def picture(
    axis: Axis, value: str, series: Series, now: Instant, width: int, height: int, *, plain: bool = False
) -> list[tuple[Span, ...]]:
    """A title line with the present value, then the plot: `height` lines of `width` cells."""
    lines = stretches(series, now, max(12, 2 * (width - 8)))
    title = f"{axis.title} "[:width]
    head = (Span(title, "bold"), Span(value[: width - len(title)].ljust(width - len(title)), "accent"))
    if not lines:
        said = "no history yet".center(width)[:width]
        rest = [(Span(said if y == (height - 1) // 2 else " " * width, "dim"),) for y in range(height - 1)]
        return [head, *rest]
    return [head, *(coloured(text) for text in plot(axis, lines, width, height - 1, plain=plain))]


def coloured(text: str) -> tuple[Span, ...]:
    """The curve stands out, its axes do not."""
    spans: list[Span] = []
    for is_curve, piece in _pieces(text):
        spans.append(Span(piece, "accent" if is_curve else "dim"))
    return tuple(spans)


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or _is_curve(text[place]) != _is_curve(text[start]):
            yield _is_curve(text[start]), text[start:place]
            start = place


def _is_curve(char: str) -> bool:
    return char == "*" or "\u2801" <= char <= "\u28ff"


def side_by_side(pictures: Sequence[Sequence[tuple[Span, ...]]], gap: int = 2) -> list[tuple[Span, ...]]:
    """Pictures of one height beside each other."""
    lines: list[tuple[Span, ...]] = []
    for parts in zip(*pictures, strict=True):
        spans: list[Span] = []
        for part in parts:
            spans += [*([Span(" " * gap)] if spans else []), *part]
        lines.append(tuple(spans))
    return lines
