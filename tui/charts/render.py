"""One chart as lines of text: axes, curves, and marks for values that are no numbers; and plots of the last hour. Pure.

plotext draws only the axes of a chart, and only when they change; see curves for why it does not draw the curves.
Curves differ without colour too: an earlier attempt shows its letter. plotext is imported at the first plot, because
the import would delay the dashboard's first paint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Literal, NamedTuple

from trainmon.analysis.explanation import GpuHour, worst
from trainmon.lib import HOUR, Instant, clean, shorten
from trainmon.model import Series
from tui.charts.axes import LABEL_WIDTH, Limits, Tick
from tui.charts.curves import DOWN, NAN, UP, Column, Frame, braille, in_ascii, ranges
from tui.style import Span, mib

# ---- the last hour of a number as lines of text ----------------------------------------------------------------------

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
    fill: bool = False,
) -> list[str]:
    """A plot of these lines by plotext: at most `height` texts."""
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.theme("clear")
    plotext.plotsize(width, height)
    for line in lines:
        plotext.plot([at for at, _ in line], [value for _, value in line], marker=marker, fillx=fill)
    plotext.xlim(*x)
    plotext.ylim(*y)
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    plotext.xticks([at for at, _ in x_ticks], [label for _, label in x_ticks])
    plotext.yticks([value for value, _ in y_ticks], [label for _, label in y_ticks])
    return plotext.uncolorize(plotext.build()).split("\n")[:height]  # type: ignore[no-any-return]


def hour_picture(
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
    texts = plot(lines, x, Limits(0.0, axis.top), x_ticks, axis.ticks, width, height - 1, marker=marker, fill=True)
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

HOUR_HEIGHT = LEAST_HEIGHT + 2
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
        top = TOPS.get(metric, max(1.0, max(series.values, default=1.0)))
        ticks = tuple((at, mib(int(at)) if metric == "memory" else f"{at:.0f}") for at in (0.0, top / 2, top))
        last = series.values[-1] if series.values else 0.0
        value = mib(int(last)) if metric == "memory" else f"{last:.0f}"
        axis = Axis(metric, TITLES[metric], top, ticks)
        pictures.append(hour_picture(axis, value, series, hour.ended_at, each, HOUR_HEIGHT, plain=plain, end="end"))
    head = (Span(shorten(clean(f"{hour.node}, last hour"), width), "head"),)
    return [head, *side_by_side(pictures)] if pictures else []


# ---- one chart as lines of text --------------------------------------------------------------------------------------

CurveRole = Literal["now", "raw", "before"]

ROLES: dict[CurveRole, str] = {"now": "", "raw": " dim", "before": " faint"}
"""What a role adds to the colour of a curve."""

AXES = "dim"

AXIS = LABEL_WIDTH + 1
"""Cells left of the curves: labels and axis."""

LETTER_EVERY = 16
"""Cells between two letters of an earlier attempt."""


class Signs(NamedTuple):
    """The symbols of a chart, in Unicode or in ASCII."""

    nan: str = "✗"
    up: str = "↑"
    down: str = "↓"
    restart: str = "╎"
    save: str = "▴"
    moment: str = "▼"
    upright: str = "│"
    """Above the moment."""
    dots_across: int = 2
    """Dots of a cell: 2 by 4 in Braille."""
    dots_up: int = 4


BRAILLE, ASCII = Signs(), Signs("X", "^", "v", ":", "^", "!", "|", 1, 1)


def signs(*, plain: bool) -> Signs:
    return ASCII if plain else BRAILLE


class CurveLine(NamedTuple):
    """A curve to draw: its columns and its style."""

    columns: Sequence[Column | None]
    role: CurveRole
    letter: str = ""
    """The letter of an earlier attempt, or of another run."""
    colour: int = 0
    settled: int = 0
    """The first column behind its start."""

    @property
    def style(self) -> str:
        return f"curve{self.colour}{ROLES[self.role]}"


class Chart(NamedTuple):
    """The contents of one chart."""

    title: tuple[Span, ...]
    frame: Frame
    y: Limits
    curves: tuple[CurveLine, ...]
    """Later curves are drawn over earlier ones."""
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    log: bool = False
    restarts: tuple[float, ...] = ()
    saves: tuple[float, ...] = ()
    """The steps or times of committed checkpoints."""
    moments: tuple[float, ...] = ()
    """The step or time that the charts were opened for."""
    cursor: float | None = None
    """The step or time whose values the title shows."""
    is_cut: bool = False
    """Whether values may be outside the y axis."""

    def height(self, dots: int) -> Callable[[float], int]:
        """A function from a value to its dot, from the bottom. On a log axis, zero and below are at the bottom."""
        if self.log:
            low, least = math.log10(self.y.low), self.y.low
            share = (dots - 1) / (math.log10(self.y.high) - low)
            return lambda value: int(0.5 + share * (math.log10(max(value, least)) - low))
        share, low = (dots - 1) / (self.y.high - self.y.low), self.y.low
        return lambda value: int(0.5 + share * (value - low))


def frame_of(x: Limits, width: int, *, plain: bool) -> Frame:
    """The frame of a chart of this width."""
    return Frame(x.low, x.high, max(1, width - AXIS) * signs(plain=plain).dots_across)


def picture(chart: Chart, width: int, height: int, *, plain: bool, labelled: bool) -> list[tuple[Span, ...]]:
    """A title line, then the plot: `height` lines of `width` cells. `labelled`: the last line has the x ticks."""
    sign = signs(plain=plain)
    rows = height - 2 - labelled
    low, high = chart.frame.low, chart.frame.high
    x_ticks = tuple(((at - low) / (high - low), label) for at, label in chart.x_ticks) if labelled else ()
    foot, scale = chart.height(10_001), 10_000.0
    y_ticks = tuple((foot(at) / scale, label) for at, label in chart.y_ticks)
    ours = {curve.style for curve in chart.curves if curve.role != "before"}
    canvas = Canvas(axes(width, height - 1, x_ticks, one_a_line(y_ticks, rows)), width, rows, {*ours, LETTER})
    top = max(1, rows * sign.dots_up)
    to_dot = chart.height(top)
    for curve in chart.curves:
        for row, column, char in dots(curve, lambda value: min(max(to_dot(value), -1), top), plain=plain):
            if 0 <= row < rows:
                canvas.put(rows - 1 - row, column, char, curve.style)
    for mark in (*letter_marks(chart, rows, sign), *upright_marks(chart, rows, sign)):
        canvas.put_beside(*mark)
    for mark in odd_marks(chart, rows, sign):
        canvas.put(*mark)
    for ats, symbol, style in ((chart.saves, sign.save, "ok"), (chart.moments, sign.moment, "warn")):
        for at in (at for at in ats if at in chart.frame):
            canvas.put(rows, chart.frame.column_of(at) // sign.dots_across, symbol, style)
    return [chart.title, *canvas.lines()]


def one_a_line(ticks: Sequence[Tick], rows: int) -> tuple[Tick, ...]:
    """The y ticks, one per line: plotext would take any of several on one line."""
    return tuple({round(share * (rows - 1)): (share, label) for share, label in ticks}.values())


def axes(width: int, height: int, x_ticks: tuple[Tick, ...], y_ticks: tuple[Tick, ...]) -> tuple[str, ...]:
    """An empty plot. Ticks are at shares of the axes, from 0 to 1. Each axis is drawn (and cached) alone: plotext is
    slow for each cell, and mostly only one axis changes."""
    below = 1 + bool(x_ticks)
    upright = drawn(AXIS + 2, height, ((0.5, " "),) if x_ticks else (), y_ticks)
    along = drawn(width, below + 2, x_ticks, ())
    return (*(line[:AXIS].ljust(width) for line in upright[: height - below]), *along[-below:])


@lru_cache(256)
def drawn(width: int, height: int, x_ticks: tuple[Tick, ...], y_ticks: tuple[Tick, ...]) -> tuple[str, ...]:
    """An empty plot by plotext."""
    labels = [(share, label.rjust(LABEL_WIDTH)) for share, label in y_ticks] or [(0.0, " " * LABEL_WIDTH)]
    nothing = [[(-10.0, -10.0)]]  # outside; without any point plotext draws no axes
    return tuple(plot(nothing, Limits(0, 1), Limits(0, 1), x_ticks, labels, width, height, marker=" "))


def dots(curve: CurveLine, height: Callable[[float], int], *, plain: bool) -> Iterator[tuple[int, int, str]]:
    """The cells of a curve: row from the bottom, column, character."""
    found = ranges(curve.columns, height)
    return in_ascii(found, {"now": "*", "raw": ".", "before": curve.letter}[curve.role]) if plain else braille(found)


# ---- marks over the curves ----------------------------------------------------------------------------------------

Mark = tuple[int, int, str, str]
"""Line, column, symbol, style."""


def upright_marks(chart: Chart, rows: int, sign: Signs) -> Iterator[Mark]:
    """The lines of a moment and of restarts."""
    cursors = () if chart.cursor is None else (chart.cursor,)
    lines = (
        (chart.moments, sign.upright, "warn"), (cursors, sign.upright, "bold"), (chart.restarts, sign.restart, AXES),
    )  # fmt: skip
    for at, symbol, style in ((at, symbol, style) for ats, symbol, style in lines for at in ats if at in chart.frame):
        column = chart.frame.column_of(at) // sign.dots_across
        yield from ((row, column, symbol, style) for row in range(rows))


def odd_marks(chart: Chart, rows: int, sign: Signs) -> Iterator[Mark]:
    """Marks for nan and infinities; on a log axis also for values that are not above zero."""
    for curve in chart.curves:
        style = "crit dim" if curve.role == "before" else "crit"
        for index, column in enumerate(curve.columns):
            if column is None or not (column.odd or chart.log or chart.is_cut):
                continue
            at = index // sign.dots_across
            if chart.is_cut and column.high > chart.y.high:
                yield 0, at, sign.up, "warn"
            if chart.is_cut and column.low < chart.y.low:
                yield rows - 1, at, sign.down, "warn"
            if column.odd & DOWN:
                yield rows - 1, at, sign.down, style
            elif chart.log and column.low <= 0:
                yield rows - 1, at, sign.down, "warn"
            if column.odd & (NAN | UP):
                yield 0, at, sign.nan if column.odd & NAN else sign.up, style


def letter_marks(chart: Chart, rows: int, sign: Signs) -> Iterator[Mark]:
    """The letters of earlier attempts on their curves."""
    height = chart.height(max(1, rows * sign.dots_up))
    for number, curve in enumerate(one for one in chart.curves if one.letter):
        for cell in range(2 + 5 * number, chart.frame.columns // sign.dots_across, LETTER_EVERY):
            column = curve.columns[cell * sign.dots_across]
            if column is not None and column.is_drawn:
                yield rows - 1 - height(column.last) // sign.dots_up, cell, curve.letter, LETTER


LETTER = "bold dim"


class Canvas:
    """The cells of a plot: each a character and a style."""

    def __init__(self, texts: Sequence[str], width: int, rows: int, ours: Container[str]) -> None:
        """`ours`: the styles that nothing is put over beside the curves."""
        self.width, self.rows, self.ours = width, rows, ours
        self.chars = [list(text[:width].ljust(width)) for text in texts]
        self.styles = [[AXES] * width for _ in texts]

    def put(self, row: int, column: int, char: str, style: str) -> None:
        """Draw over the curves, or on the x axis."""
        at = AXIS + column
        if 0 <= row <= self.rows and row < len(self.chars) and at < self.width:
            self.chars[row][at], self.styles[row][at] = char, style

    def put_beside(self, row: int, column: int, char: str, style: str) -> None:
        """Draw where the current attempt is not; an upright line only in empty cells."""
        at = AXIS + column
        if not (0 <= row < min(self.rows, len(self.chars)) and at < self.width):
            return
        if self.styles[row][at] not in self.ours and (style == LETTER or self.chars[row][at] == " "):
            self.put(row, column, char, style)

    def lines(self) -> Iterator[tuple[Span, ...]]:
        for chars, styles in zip(self.chars, self.styles, strict=True):
            runs = groupby(zip(styles, chars, strict=True), itemgetter(0))
            yield tuple(Span("".join(char for _, char in run), style) for style, run in runs)
