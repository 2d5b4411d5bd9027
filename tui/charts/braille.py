"""A curve's columns as dots: four rows of two in each cell of Braille, or one a cell in ASCII. Pure.

plotext takes 5 to 40 ms to draw one curve of 300 columns, and all of it again for one more point. With two attempts
beside the present one and eight charts that was half a second for each key. Dots from columns are half a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tui.charts.downsample import Column

Range = tuple[int, int]
"""The dots of one column, from the lowest to the highest."""


def ranges(columns: Sequence[Column | None], height: Callable[[float], int]) -> list[Range | None]:
    """The dots of each column, joined to one line; it breaks where a column holds no number, not where no point is."""
    made: list[Range | None] = [None] * len(columns)
    before: int | None = None
    last = 0
    for place, column in enumerate(columns):
        if column is None:
            continue
        if not column.is_drawn:
            before = None
            continue
        low, high = height(column.low), height(column.high)
        if before is not None:
            near = low if last < low else high if last > high else last
            for between in range(before + 1, place):
                at = last + round((near - last) * (between - before) / (place - before))
                made[between] = (at, at)
        made[place], before, last = (low, high), place, height(column.last)
    _join(made)
    return made


def _join(made: list[Range | None]) -> None:
    """Neighbours meet in the middle of what is between them."""
    for place in range(1, len(made)):
        left, right = made[place - 1], made[place]
        if left is None or right is None:
            continue
        if left[1] + 1 < right[0]:
            middle = (left[1] + right[0]) // 2
            made[place - 1], made[place] = (left[0], middle), (middle + 1, right[1])
        elif right[1] + 1 < left[0]:
            middle = (right[1] + left[0]) // 2
            made[place - 1], made[place] = (middle + 1, left[1]), (right[0], middle)


DOT_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Of a cell of Braille: the left and the right column, from the foot to the top."""

MASKS = tuple(tuple(tuple(sum(bits[low : high + 1]) for high in range(4)) for low in range(4)) for bits in DOT_BITS)


def braille(found: Sequence[Range | None]) -> Iterator[tuple[int, int, str]]:
    """The cells that have dots: row from the foot, column, character."""
    cells: dict[tuple[int, int], int] = {}
    for place, dots in enumerate(found):
        if dots is None:
            continue
        across, side = divmod(place, 2)
        masks = MASKS[side]
        low, high = dots
        for row in range(low // 4, high // 4 + 1):
            mask = masks[max(0, low - 4 * row)][min(3, high - 4 * row)]
            cells[row, across] = cells.get((row, across), 0) | mask
    return ((row, across, chr(0x2800 + bits)) for (row, across), bits in cells.items())


def in_ascii(found: Sequence[Range | None], char: str) -> Iterator[tuple[int, int, str]]:
    """The same with one character a cell."""
    for across, dots in enumerate(found):
        if dots is not None:
            yield from ((row, across, char) for row in range(dots[0], dots[1] + 1))
