"""The layout of the main screen: which panes it shows at which size, and where. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tui.keys import NAMES

TINY_COLUMNS = 60
TWO_COLUMNS = 120
THREE_COLUMNS = 180
SHORT_ROWS = 16
TALL_ROWS = 50
THREE_ROWS = 30
"""The height from which GPUs, disks and alerts fit below each other."""
WIDE_LOG_ROWS = 40
"""The height from which the log fits below two of three columns. A step line has about 130 cells, a column has 78."""


class Shape(NamedTuple):
    """The visible panes, column by column, and the numbers of the panes that do not fit."""

    columns: tuple[tuple[str, ...], ...]
    hidden: tuple[str, ...] = ()
    across: str = ""
    """The pane below the first two columns, as wide as both."""


class Chosen(NamedTuple):
    """The last choices: the focused pane, and the visible one of each group of panes that share a position."""

    current: str = "1"
    lower: str = "4"
    """Of all but 1: the pane in the lower half of a single column."""
    beside: str = "4"
    """Of 4 and 7: the pane under the runs if there are several columns."""
    right: str = "3"
    """Of 3 and 5: the pane under the GPUs if both do not fit."""
    charts: bool = False
    """Whether 6 is under the runs instead, if it has no column of its own."""

    def go_to(self, number: str) -> Chosen:
        lower = self.lower if number == "1" else number
        right = number if number in ("3", "5") else self.right
        if number in ("4", "7"):
            return Chosen(number, lower, number, right)
        return Chosen(number, lower, self.beside, right, self.charts or number == "6")


def shape(
    width: int, height: int, chosen: Chosen, *, zoomed: bool = False, queue: bool = False, charts: bool = False
) -> Shape:
    """The panes for this size. `queue`, `charts`: whether there are any; if so, they get a position if they fit."""
    if zoomed or is_tiny(width, height):
        return Shape(((chosen.current,),), others(chosen.current))
    if width < TWO_COLUMNS:
        return Shape((("1", chosen.lower),), others("1", chosen.lower))
    right = ("2", "3", "5") if height >= THREE_ROWS else ("2", chosen.right)
    if width < THREE_COLUMNS:
        left = left_column(height, "6" if chosen.charts else chosen.beside, chosen.beside, queue=queue)
        return Shape((left, right), others(*left, *right))
    left = left_column(height, chosen.beside, chosen.beside, queue=queue)
    third = ("6", "run") if charts or chosen.current == "6" else ("run",)
    columns, shown = (left, right, third), (*left, *right, *third)
    if height < WIDE_LOG_ROWS or "4" not in left:
        return Shape(columns, others(*shown))
    return Shape((tuple(pane for pane in left if pane != "4"), right, third), others(*shown), "4")


def left_column(height: int, under: str, beside: str, *, queue: bool) -> tuple[str, ...]:
    """The runs and the pane under them; the queue too, if it fits."""
    if height >= TALL_ROWS and (queue or beside == "7"):
        return ("1", "7", "4" if under == "7" else under)
    return ("1", under)


def others(*shown: str) -> tuple[str, ...]:
    return tuple(number for number in NAMES if number not in shown)


def is_tiny(width: int, height: int) -> bool:
    return width < TINY_COLUMNS or height < SHORT_ROWS


def names_of(numbers: tuple[str, ...]) -> str:
    """Panes with their keys."""
    return "  ".join(f"{number} {NAMES[number]}" for number in numbers)


def what_is_hidden(hidden: tuple[str, ...], width: int) -> str:
    """The text that names the hidden panes; shorter on a narrow screen."""
    names = names_of(hidden)
    sentences = (f"one pane fits here; also: {names}", f"also {names}", f"also {' '.join(hidden)}")
    return next((sentence for sentence in sentences if len(sentence) < width), sentences[-1])


# ---- where each pane stands ----------------------------------------------------------------------------------------


class PaneRegion(NamedTuple):
    """The position (cells from the left and the top) and size of a pane."""

    x: int
    y: int
    width: int
    height: int


WIDTHS: Mapping[int, Sequence[int]] = {1: (1,), 2: (57, 43), 3: (44, 36, 32)}
"""The width shares of the columns, by their number."""

ABOVE_AND_ACROSS = (7, 3)
"""The height shares of the first two columns and of the pane below both."""

HIGH = frozenset({"2", "4", "6", "7"})
"""Panes that get half as many lines again as the others."""


def pane_regions(shape: Shape, width: int, height: int) -> dict[str, PaneRegion]:
    """The position of every pane: columns side by side, the panes of a column below each other."""
    found: dict[str, PaneRegion] = {}
    sides = cuts(width, WIDTHS[len(shape.columns)])
    above = cuts(height, ABOVE_AND_ACROSS)[0][1] if shape.across else height
    for number, (column, (left, right)) in enumerate(zip(shape.columns, sides, strict=True)):
        rows = above if number < 2 else height
        for pane, (top, bottom) in zip(column, cuts(rows, heights(column, len(shape.columns))), strict=True):
            found[pane] = PaneRegion(left, top, right - left, bottom - top)
    if shape.across:
        found[shape.across] = PaneRegion(0, above, sides[1][1], height - above)
    return found


def heights(column: tuple[str, ...], columns: int) -> list[int]:
    """The height shares of the panes of a column. In a single column, the chosen pane gets most."""
    if columns == 1:
        return [2, 3][: len(column)]
    if column == ("2", "3", "5"):
        return [4, 2, 3]
    return [2, 2, 3] if len(column) == 3 else [3 if pane in HIGH else 2 for pane in column]


def cuts(cells: int, shares: Sequence[int]) -> list[tuple[int, int]]:
    """The start and end of each share, without gaps."""
    return list(pairwise([cells * part // sum(shares) for part in accumulate(shares, initial=0)]))
