"""How many charts fit into a pane, and their sizes. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tui.charts.axes import LABEL_WIDTH

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
