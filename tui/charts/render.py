"""One chart as lines of text: axes, curves, and marks for values that are no numbers; and plots of the last hour. Pure.

Curves differ without colour too: an earlier attempt shows its letter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from statistics import fmean
from typing import Literal, NamedTuple

from trainmon.analysis.explanation import GpuHour, worst
from trainmon.lib import HOUR, MINUTE, Instant, clean, shorten
from trainmon.model import Series
from tui.charts.axes import LABEL_WIDTH, Limits, Tick
from tui.charts.curves import DOWN, NAN, UP, Column, Frame, braille, in_ascii, ranges
from tui.style import Span, mib

# ---- the last hour of a number as lines of text ----------------------------------------------------------------------

LEAST_WIDTH, LEAST_HEIGHT = 26, 7
GAP = Column(math.nan, math.nan, math.nan)


class Axis(NamedTuple):
    """The title, the fixed top and the ticks of a y axis."""

    metric: str
    title: str
    top: float
    ticks: tuple[tuple[float, str], ...]


def hour_columns(series: Series, now: Instant, count: int) -> list[Column | None]:
    """The means of so many slices of the last hour, each from zero up. A gap of more than two slices stays one.

    Slices begin at fixed times, not at ages: an old slice keeps its mean, so a plot changes once a slice.
    """
    slice_s = HOUR / count
    last = math.floor(now / slice_s)
    values: dict[int, list[float]] = {}
    for offset, value in zip(series.offsets, series.values, strict=True):
        if -offset <= HOUR and not math.isnan(value):
            values.setdefault(max(0, math.floor((now + offset) / slice_s) - last + count - 1), []).append(value)
    columns: list[Column | None] = [None] * (count + 1)
    before = -math.inf
    for at, found in sorted(values.items()):
        start = at if at - before > 2 else int(before) + 1
        columns[start : at + 1] = [Column(0.0, fmean(found), fmean(found))] * (at + 1 - start)
        columns[at + 1], before = GAP, at
    return columns[:-1]


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
    title, left = f"{axis.title} "[:width], max(len(label) for _, label in axis.ticks)
    head = (Span(title, "bold"), Span(value[: width - len(title)].ljust(width - len(title)), "accent"))
    frame = frame_of(Limits(-HOUR / MINUTE, 0.0), width, left, plain=plain)
    columns = hour_columns(series, now, frame.columns)
    if not any(columns):
        note = "no history yet".center(width)[:width]
        rest = [(Span(note if y == (height - 1) // 2 else " " * width, "dim"),) for y in range(height - 1)]
        return [head, *rest]
    chart = Chart(
        head, frame, Limits(0.0, axis.top), (CurveLine(columns, "now"),),
        ((-60.0, "-60m"), (-30.0, "-30m"), (0.0, end)), axis.ticks, left=left,
    )  # fmt: skip
    return picture(chart, width, height, plain=plain, labelled=True)


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
        highest = max(series.values, default=1.0)
        top = TOPS.get(metric, max(1.0, highest))
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
    left: int = LABEL_WIDTH
    """Cells of the labels of the y axis."""

    def height(self, dots: int) -> Callable[[float], int]:
        """A function from a value to its dot, from the bottom. On a log axis, zero and below are at the bottom."""
        if self.log:
            low, least = math.log10(self.y.low), self.y.low
            share = (dots - 1) / (math.log10(self.y.high) - low)
            return lambda value: int(0.5 + share * (math.log10(max(value, least)) - low))
        share, low = (dots - 1) / (self.y.high - self.y.low), self.y.low
        return lambda value: int(0.5 + share * (value - low))


def frame_of(x: Limits, width: int, left: int = LABEL_WIDTH, *, plain: bool) -> Frame:
    """The frame of a chart of this width, with so many cells for the labels of its y axis."""
    return Frame(x.low, x.high, max(1, width - left - 1) * signs(plain=plain).dots_across)


def picture(chart: Chart, width: int, height: int, *, plain: bool, labelled: bool) -> list[tuple[Span, ...]]:
    """A title line, then the plot: `height` lines of `width` cells. `labelled`: the last line has the x ticks."""
    sign = signs(plain=plain)
    rows = height - 2 - labelled
    ours = {curve.style for curve in chart.curves if curve.role != "before"}
    canvas = Canvas(axes(chart, width, rows, labelled=labelled), width, rows, chart.left + 1, {*ours, LETTER})
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


def axes(chart: Chart, width: int, rows: int, *, labelled: bool) -> Iterator[str]:
    """The lines of an empty plot. Of y ticks on one line, the highest is written; of x ticks, those that fit."""
    height = chart.height(max(1, rows))
    labels = {rows - 1 - height(at): label for at, label in chart.y_ticks}
    for row in range(rows):
        yield f"{labels.get(row, ''):>{chart.left}}{'┤' if row in labels else '│'}"
    along, below = ["─"] * (width - chart.left - 1), ""
    for at, label in chart.x_ticks if labelled else ():
        share = (at - chart.frame.low) / (chart.frame.high - chart.frame.low)
        column = int(0.5 + share * (len(along) - 1))
        begin = min(chart.left + 1 + column - len(label) // 2, width - len(label) - 1)
        if begin > len(below):
            along[column], below = "┬", below.ljust(begin) + label
    yield " " * chart.left + "└" + "".join(along)
    if labelled:
        yield below


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

    def __init__(self, texts: Iterable[str], width: int, rows: int, left: int, ours: Container[str]) -> None:
        """`left`: the cells before the plot; `ours`: the styles that nothing is put over beside the curves."""
        self.width, self.rows, self.left, self.ours = width, rows, left, ours
        self.chars = [list(text[:width].ljust(width)) for text in texts]
        self.styles = [[AXES] * width for _ in self.chars]

    def put(self, row: int, column: int, char: str, style: str) -> None:
        """Draw over the curves, or on the x axis."""
        at = self.left + column
        if 0 <= row <= self.rows and row < len(self.chars) and at < self.width:
            self.chars[row][at], self.styles[row][at] = char, style

    def put_beside(self, row: int, column: int, char: str, style: str) -> None:
        """Draw where the current attempt is not; an upright line only in empty cells."""
        at = self.left + column
        if not (0 <= row < min(self.rows, len(self.chars)) and at < self.width):
            return
        if self.styles[row][at] not in self.ours and (style == LETTER or self.chars[row][at] == " "):
            self.put(row, column, char, style)

    def lines(self) -> Iterator[tuple[Span, ...]]:
        for chars, styles in zip(self.chars, self.styles, strict=True):
            runs = groupby(zip(styles, chars, strict=True), itemgetter(0))
            yield tuple(Span("".join(char for _, char in run), style) for style, run in runs)
