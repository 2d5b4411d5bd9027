"""The view of charts: how many fit into a pane; by step or by time, the window, smoothing, earlier attempts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from trainmon.lib import Seconds
from tui.charts.axes import LABEL_WIDTH, Limits
from tui.charts.cache import Copy

# ---- the view of charts ----------------------------------------------------------------------------------------------

Span = Literal["all", "day", "hour"]

SPANS: dict[Span, tuple[Seconds, str]] = {
    "all": (0.0, "all"), "day": (86_400.0, "last day"), "hour": (3_600.0, "last hour"),
}  # fmt: skip

WEIGHTS = (0.0, 0.6, 0.9, 0.99)
"""The levels of `s`; 0.6 is the default of TensorBoard."""

LEAST_STEPS, LEAST_SECONDS = 10.0, 10.0
"""The narrowest window."""


class View(NamedTuple):
    """The chosen options. All charts share them, so that one step is in the same column of all charts."""

    by_time: bool = False
    log: bool = False
    weight: float = 0.0
    span: Span = "all"
    compare: bool = True
    width: float | None = None
    """The width of the zoomed window in steps or seconds; None: see `span`."""
    end: float | None = None
    """The end of the window; None: it follows the end of the curves."""

    def labels(self) -> tuple[str, ...]:
        """The options as short texts, the most important first."""
        part = SPANS[self.span][1] if self.width is None else "zoomed"
        held = ("held",) if self.end is not None else ()
        return (
            part, *held, "by time" if self.by_time else "by step", *(("log",) if self.log else ()),
            *((f"smooth {self.weight:g}",) if self.weight else ()), *(() if self.compare else ("alone",)),
        )  # fmt: skip

    # ---- keys ----

    def other_axis(self, part: Limits | None) -> View:
        """The same view by the other axis; `part` is its window there, if known."""
        other = self.whole()._replace(by_time=not self.by_time)
        if part is None:
            return other
        return other._replace(width=part.high - part.low, end=None if self.end is None else part.high)

    def smoother(self) -> View:
        return self._replace(weight=WEIGHTS[(WEIGHTS.index(self.weight) + 1) % len(WEIGHTS)])

    def other_span(self) -> View:
        spans = list(SPANS)
        return self.whole()._replace(span=spans[(spans.index(self.span) + 1) % len(spans)])

    def whole(self) -> View:
        return self._replace(width=None, end=None)

    def closer(self, shown: Limits, data: Limits) -> View:
        """Half the window: around its middle, or at the end while it follows the end."""
        least = LEAST_SECONDS if self.by_time else LEAST_STEPS
        width = max((min(shown.high, data.high) - max(shown.low, data.low)) / 2, least)
        return self._replace(width=width, end=None if self.end is None else self.end - width / 2)

    def farther(self, data: Limits) -> View:
        """Twice the window; all, if it is as wide as the curves."""
        if self.width is None:
            return self._replace(span="all")
        width = 2 * self.width
        if width >= data.high - data.low:
            return self.whole()._replace(span="all")
        end = None if self.end is None else self.end + self.width / 2
        return self._replace(width=width)._ending(end, data)

    def moved(self, by: int, shown: Limits, data: Limits) -> View:
        """The window a quarter earlier or later; at the end of the curves, it follows them again."""
        width = self.width if self.width is not None else shown.high - shown.low
        if width >= data.high - data.low:
            return self
        end = (data.high if self.end is None else self.end) + by * width / 4
        return self._replace(width=width)._ending(max(end, data.low + width), data)

    def _ending(self, end: float | None, data: Limits) -> View:
        return self._replace(end=None if end is None or end >= data.high else end)


def reach(copies: Sequence[Copy], *, by_time: bool) -> Limits | None:
    """The range from the first to the last point of these curves."""
    ends = [(xs[0], xs[-1]) for copy in copies if (xs := copy.xs(by_time=by_time))]
    return Limits(min(first for first, _ in ends), max(last for _, last in ends)) if ends else None


def window(view: View, data: Limits, lead: Copy) -> Limits:
    """The visible range of curves with this extent; `lead` converts between steps and times."""
    if view.width is not None:
        end = data.high if view.end is None else view.end
        return Limits(max(data.low, end - view.width), max(end, data.low + view.width))
    seconds, _ = SPANS[view.span]
    if not seconds or not lead.times:
        return data
    since = lead.times[-1] - seconds
    low = since if view.by_time else lead.step_at(since)
    return data if low is None else Limits(min(max(data.low, low), data.high), data.high)


# ---- how many charts fit into a pane, and their sizes ----------------------------------------------------------------

TABLE, LEAST_CHARTS = 34, 56
"""The width of a table beside the charts, and the least width of the charts then."""

TABLE_BELOW_FROM, TABLE_ROWS = 20, 5
"""The height from which a narrow pane shows the table below, and the lines of that table."""

CHART_WIDTH, CHART_HEIGHT, LOW_HEIGHT = 54, 8, 6
"""The preferred size of a chart; and the least height, if two do not fit otherwise."""

LABELLED_FROM = 11
"""From this height, each chart has x ticks; below, only those in the last row."""

GAP = 2


class ChartGrid(NamedTuple):
    """The position and size of the table, and the size of the charts' area."""

    table: Literal["beside", "below", "none"]
    table_size: int
    width: int
    height: int


class ChartCell(NamedTuple):
    """The size of one chart, and whether it has x ticks."""

    width: int
    height: int
    labelled: bool


def layout(width: int, height: int) -> ChartGrid:
    """The layout of charts and table in a pane of this size."""
    if width >= LEAST_CHARTS + TABLE + 1:
        table = min(TABLE + (width - LEAST_CHARTS - TABLE) // 4, 46)
        return ChartGrid("beside", table, width - table, height)
    if height >= TABLE_BELOW_FROM:
        return ChartGrid("below", TABLE_ROWS, width, height - TABLE_ROWS)
    return ChartGrid("none", 0, width, height)


def chart_cells(width: int, height: int, count: int) -> list[list[ChartCell]]:
    """Rows of at most `count` charts. With several columns, the first chart takes a whole row."""
    if count <= 0 or height < 3 or width <= LABEL_WIDTH + 4:
        return []
    rows = max(1, height // CHART_HEIGHT, 2 if height >= 2 * LOW_HEIGHT else 1)
    across = max(1, (width + GAP) // (CHART_WIDTH + GAP))
    numbers = [min(across, count)]
    if rows > 1:
        rows = min(rows, 1 + -(-(count - 1) // across))
        numbers = [1, *(min(across, count - 1 - across * row) for row in range(rows - 1))]
    wide = [widths(width, numbers[0])] + [widths(width, across)] * (len(numbers) - 1)
    return [
        [ChartCell(cells, tall, row == len(numbers) - 1 or tall >= LABELLED_FROM) for cells in wide[row][:number]]
        for row, (tall, number) in enumerate(zip(shares(height, len(numbers)), numbers, strict=True))
    ]


def shares(height: int, rows: int) -> list[int]:
    """The height of each row: the first is half as high again, and gets the rest."""
    each = max(int(height / (rows + 0.5)), min(LOW_HEIGHT, height // rows))
    return [height - each * (rows - 1), *[each] * (rows - 1)]


def widths(width: int, columns: int) -> list[int]:
    each = (width - GAP * (columns - 1)) // columns
    return [each] * (columns - 1) + [width - (each + GAP) * (columns - 1)]
