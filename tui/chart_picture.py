"""One chart as lines of text: plotext draws curves and axes, what stands for no number is marked over them. Pure.

plotext is imported at the first chart, because the dashboard must paint before it. Curves are told apart without colour
as well: an earlier attempt carries its letter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from tui.chart_axes import LABEL_AT_MOST, Limits, Tick
from tui.chart_columns import DOWN, NAN, UP, Column, Frame
from tui.lines import Span

Look = Literal["now", "raw", "before"]

STYLE_OF: tuple[Look, ...] = ("now", "raw", "before")
STYLES: dict[Look, str] = {"now": "accent", "raw": "accent dim", "before": "dim"}
AXES = "dim"

AXIS = LABEL_AT_MOST + 1
"""Cells left of the curves: the labels and the line."""

LETTER_EVERY = 16
"""Cells from one letter of an earlier attempt to the next."""


class Signs(NamedTuple):
    """What is drawn over a chart, for a terminal that shows all of Unicode or only ASCII."""

    nan: str = "✗"
    up: str = "↑"
    down: str = "↓"
    restart: str = "╎"
    save: str = "▴"
    dots_across: int = 2
    """Of a cell of Braille: 2 by 4 dots."""
    dots_up: int = 4


BRAILLE, ASCII = Signs(), Signs("X", "^", "v", ":", "^", 1, 1)


def signs(*, plain: bool) -> Signs:
    return ASCII if plain else BRAILLE


class CurveLine(NamedTuple):
    """One curve to draw: its columns, and which it is."""

    columns: Sequence[Column | None]
    look: Look
    letter: str = ""
    """Of an earlier attempt."""


class Chart(NamedTuple):
    """All that one chart shows."""

    title: tuple[Span, ...]
    frame: Frame
    y: Limits
    curves: tuple[CurveLine, ...]
    """Those drawn later lie over the ones before."""
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    log: bool = False
    restarts: tuple[float, ...] = ()
    saves: tuple[float, ...] = ()
    """Where a checkpoint was committed."""

    @property
    def scale(self) -> Callable[[float], float]:
        """From a value to its height; a log axis has no place for zero and below: they lie on its foot."""
        low = self.y.low
        return (lambda value: math.log10(max(value, low))) if self.log else float


def frame_of(x: Limits, width: int, *, plain: bool) -> Frame:
    """The columns that a chart of this width has for this stretch of its axis."""
    return Frame(x.low, x.high, max(1, width - AXIS) * signs(plain=plain).dots_across)


def picture(chart: Chart, width: int, height: int, *, plain: bool, labelled: bool) -> list[tuple[Span, ...]]:
    """A title line, then the plot: `height` lines of `width` cells; `labelled`: the last has the ticks of x."""
    sign = signs(plain=plain)
    canvas = Canvas(plotted(chart, width, height - 1, sign, labelled=labelled), width)
    rows = height - 2 - labelled
    for mark in (*restart_marks(chart, rows, sign), *letter_marks(chart, rows, sign), *odd_marks(chart, rows, sign)):
        canvas.put(*mark)
    canvas.save_marks(chart, rows, sign)
    return [chart.title, *canvas.lines()]


# ---- what plotext draws --------------------------------------------------------------------------------------------


def stretches(curve: CurveLine, scale: Callable[[float], float]) -> Iterator[tuple[list[float], list[float]]]:
    """A curve as unbroken lines; it breaks where a column holds no number, and not where it holds no point."""
    xs: list[float] = []
    ys: list[float] = []
    for place, column in enumerate(curve.columns):
        if column is None:
            continue
        if not column.is_drawn:
            if xs:
                yield xs, ys
            xs, ys = [], []
            continue
        ends = sorted((column.low, column.high), key=lambda end: -abs(end - column.last))
        for end in ends if column.low != column.high else ends[:1]:
            xs.append(place)
            ys.append(scale(end))
    if xs:
        yield xs, ys


def plotted(chart: Chart, width: int, height: int, sign: Signs, *, labelled: bool) -> list[str]:
    """What plotext makes of it, a text a line, with its colour codes: each stands for a look."""
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.theme("clear")
    plotext.plotsize(width, height)
    for curve in chart.curves:
        marker = "braille" if sign is BRAILLE else {"now": "*", "raw": ".", "before": curve.letter}[curve.look]
        for xs, ys in stretches(curve, chart.scale):
            plotext.plot(xs, ys, marker=marker, color=STYLE_OF.index(curve.look) + 1)
    low, high = map(chart.scale, chart.y)
    plotext.plot([-10], [low - 10 * (high - low)], marker=" ")  # of nothing it would draw no axes
    last = max(1, chart.frame.columns - 1)
    plotext.xlim(0, last)
    plotext.ylim(low, high)
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    places = [(at - chart.frame.low) / (chart.frame.high - chart.frame.low) * last for at, _ in chart.x_ticks]
    plotext.xticks(places if labelled else [], [label for _, label in chart.x_ticks] if labelled else [])
    labels = [label.rjust(LABEL_AT_MOST) for _, label in chart.y_ticks] or [" " * LABEL_AT_MOST]
    plotext.yticks([chart.scale(at) for at, _ in chart.y_ticks] or [low], labels)
    texts: list[str] = plotext.build().split("\n")[:height]
    return texts


# ---- what is marked over it ----------------------------------------------------------------------------------------

Mark = tuple[int, int, str, str, bool]
"""Line and column of the curves' area, sign, style, and whether it goes over a curve."""


def restart_marks(chart: Chart, rows: int, sign: Signs) -> Iterator[Mark]:
    for at in chart.restarts:
        if at in chart.frame:
            column = chart.frame.place(at) // sign.dots_across
            yield from ((row, column, sign.restart, AXES, False) for row in range(rows))


def odd_marks(chart: Chart, rows: int, sign: Signs) -> Iterator[Mark]:
    """nan and infinities at their step; on a log axis also what is not above zero."""
    for curve in chart.curves:
        style = "crit" if curve.look != "before" else "crit dim"
        for place, column in enumerate(curve.columns):
            if column is None or not (column.odd or chart.log):
                continue
            at = place // sign.dots_across
            if column.odd & DOWN:
                yield rows - 1, at, sign.down, style, True
            elif chart.log and column.low <= 0:
                yield rows - 1, at, sign.down, "warn", True
            if column.odd & (NAN | UP):
                yield 0, at, sign.nan if column.odd & NAN else sign.up, style, True


def letter_marks(chart: Chart, rows: int, sign: Signs) -> Iterator[Mark]:
    low, high = map(chart.scale, chart.y)
    for number, curve in enumerate(one for one in chart.curves if one.letter):
        for cell in range(2 + 5 * number, chart.frame.columns // sign.dots_across, LETTER_EVERY):
            column = curve.columns[cell * sign.dots_across]
            if column is not None and column.is_drawn:
                share = (chart.scale(column.last) - low) / (high - low)
                row = int(0.5 + (rows * sign.dots_up - 1) * share) // sign.dots_up
                yield rows - 1 - row, cell, curve.letter, STYLES["before"] + " bold", False


CODE = re.compile("\x1b\\[([0-9;]*)m")
CURVE_STYLES = frozenset({STYLES["now"], STYLES["raw"]})


class Canvas:
    """The cells of a plot: each a character and a style."""

    def __init__(self, texts: Sequence[str], width: int) -> None:
        self.width = width
        self.chars: list[list[str]] = []
        self.styles: list[list[str]] = []
        for text in texts:
            chars: list[str] = []
            styles: list[str] = []
            style = AXES
            for place, piece in enumerate(CODE.split(text)):
                if place % 2:
                    style = STYLES[STYLE_OF[int(piece.rpartition(";")[2]) - 1]] if piece.startswith("38;5;") else AXES
                else:
                    chars += piece
                    styles += [style] * len(piece)
            self.chars.append((chars + [" "] * width)[:width])
            self.styles.append((styles + [AXES] * width)[:width])

    def put(self, row: int, column: int, char: str, style: str, over: bool) -> None:
        """Draw a sign in the curves' area; one that does not go over a curve only where none of this attempt is."""
        at = AXIS + column
        if not (0 <= row < len(self.chars) and at < self.width):
            return
        free = self.styles[row][at] not in CURVE_STYLES and (self.chars[row][at] == " " or "bold" in style)
        if over or free:
            self.chars[row][at], self.styles[row][at] = char, style

    def save_marks(self, chart: Chart, rows: int, sign: Signs) -> None:
        """Checkpoints, on the line of the axis."""
        if rows >= len(self.chars):
            return
        for at in chart.saves:
            if at in chart.frame:
                column = AXIS + chart.frame.place(at) // sign.dots_across
                if column < self.width:
                    self.chars[rows][column], self.styles[rows][column] = sign.save, "ok"

    def lines(self) -> Iterator[tuple[Span, ...]]:
        for chars, styles in zip(self.chars, self.styles, strict=True):
            yield tuple(
                Span("".join(char for char, _ in cells), style)
                for style, cells in groupby(zip(chars, styles, strict=True), key=lambda cell: cell[1])
            )
