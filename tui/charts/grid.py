"""How many charts fit into a place, and where each stands. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tui.charts.axes import LABEL_AT_MOST

TABLE, LEAST_CHARTS = 34, 56
"""Cells that the table wants beside the charts, and that the charts keep then."""

TABLE_BELOW_FROM, TABLE_ROWS = 20, 5
"""Lines that a narrow pane must have to show the table below, and how many it gets."""

CHART_WIDTH, CHART_HEIGHT, LOW_HEIGHT = 54, 8, 6
"""What a chart wants; where two do not fit at that height, a low one will do."""

LABELLED_FROM = 11
"""From this height on each chart says its steps; below, only those at the foot of the pane."""

GAP = 2


class ChartGrid(NamedTuple):
    """Where the table is, and how large it and the charts are."""

    table: Literal["beside", "below", "none"]
    table_size: int
    width: int
    height: int


class ChartCell(NamedTuple):
    """Where one chart stands: its size, and whether the ticks of x are under it."""

    width: int
    height: int
    labelled: bool


def layout(width: int, height: int) -> ChartGrid:
    """Charts and table in a pane of this size."""
    if width >= LEAST_CHARTS + TABLE + 1:
        table = min(TABLE + (width - LEAST_CHARTS - TABLE) // 4, 46)
        return ChartGrid("beside", table, width - table, height)
    if height >= TABLE_BELOW_FROM:
        return ChartGrid("below", TABLE_ROWS, width, height - TABLE_ROWS)
    return ChartGrid("none", 0, width, height)


def places(width: int, height: int, count: int) -> list[list[ChartCell]]:
    """Rows of charts, at most `count`; the first chart is as wide as all where there are several columns."""
    if count <= 0 or height < 3 or width <= LABEL_AT_MOST + 4:
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
    """The lines of each row: the first has half as many again, and what is left over."""
    each = max(int(height / (rows + 0.5)), min(LOW_HEIGHT, height // rows))
    return [height - each * (rows - 1), *[each] * (rows - 1)]


def widths(width: int, columns: int) -> list[int]:
    each = (width - GAP * (columns - 1)) // columns
    return [each] * (columns - 1) + [width - (each + GAP) * (columns - 1)]
