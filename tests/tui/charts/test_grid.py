"""Places: charts fill what there is, at every size, and none is too small to read."""

from __future__ import annotations

import pytest

from tui.charts.chart import GAP, chart_cells, layout


@pytest.mark.parametrize(
    ("size", "table"),
    [((118, 36), "beside"), ((198, 56), "beside"), ((78, 20), "below"), ((78, 10), "none"), ((58, 12), "none")],
)
def test_the_table_is_beside_below_or_away(size: tuple[int, int], table: str) -> None:
    shape = layout(*size)
    assert shape.table == table
    assert shape.width > 50


@pytest.mark.parametrize("count", [1, 2, 3, 8, 12])
@pytest.mark.parametrize("size", [(56, 10), (76, 12), (80, 30), (150, 24), (160, 56), (40, 5)])
def test_the_charts_fill_the_height_and_do_not_overlap(size: tuple[int, int], count: int) -> None:
    width, height = size
    rows = chart_cells(width, height, count)

    assert sum(row[0].height for row in rows) == height
    assert 1 <= sum(map(len, rows)) <= count
    for row in rows:
        assert len({place.height for place in row}) == 1
        assert sum(place.width for place in row) + GAP * (len(row) - 1) <= width
        assert min(place.height for place in row) >= min(5, height)
    assert all(place.labelled for place in rows[-1])


def test_the_first_chart_is_the_widest_and_the_tallest() -> None:
    first, *others = chart_cells(160, 56, 7)
    assert [place.width for place in first] == [160]
    assert all(place.height < first[0].height for row in others for place in row)


def test_charts_in_one_column_are_of_one_width() -> None:
    rows = chart_cells(160, 56, 6)
    assert len({row[0].width for row in rows[1:]}) == 1
    assert [row[0].width for row in chart_cells(116, 20, 2)] == [116, 116], "none is beside the second one"


@pytest.mark.parametrize("size", [(10, 20), (80, 2), (0, 0)])
def test_where_nothing_fits_there_is_nothing(size: tuple[int, int]) -> None:
    assert chart_cells(*size, 4) == []
