"""What the main screen shows at which size: pure, so that every width is a value in a test."""

from __future__ import annotations

from typing import NamedTuple

TINY_COLUMNS = 60
TWO_COLUMNS = 120
THREE_COLUMNS = 180
SHORT_ROWS = 16
TALL_ROWS = 50

NAMES = {"1": "Runs", "2": "GPUs", "3": "Disk", "4": "Log", "7": "Queue"}


class Shape(NamedTuple):
    """The panes in sight, column by column, and the numbers of the panes that do not fit."""

    columns: tuple[tuple[str, ...], ...]
    hidden: tuple[str, ...] = ()

    @property
    def panes(self) -> tuple[str, ...]:
        return tuple(pane for column in self.columns for pane in column)


class Chosen(NamedTuple):
    """What was last chosen: the pane with the focus, and those that share a place with others."""

    current: str = "1"
    lower: str = "4"
    """Of 2, 3, 4 and 7: the lower half of the only column."""
    beside: str = "4"
    """Of 4 and 7: what stands under the runs where there are several columns."""

    def go_to(self, number: str) -> Chosen:
        return Chosen(number, self.lower if number == "1" else number, number if number in ("4", "7") else self.beside)


def shape(width: int, height: int, chosen: Chosen, *, zoomed: bool = False, queue: bool = False) -> Shape:
    """`queue`: whether there is one to show; then it has a place of its own where there is room."""
    if zoomed or width < TINY_COLUMNS or height < SHORT_ROWS:
        return Shape(((chosen.current,),), others(chosen.current))
    if width < TWO_COLUMNS:
        return Shape((("1", chosen.lower),), others("1", chosen.lower))
    left = ("1", "7", "4") if height >= TALL_ROWS and (queue or chosen.beside == "7") else ("1", chosen.beside)
    columns = (left, ("2", "3")) if width < THREE_COLUMNS else (left, ("2", "3"), ("run",))
    return Shape(columns, others(*left, "2", "3"))


def others(*shown: str) -> tuple[str, ...]:
    return tuple(number for number in NAMES if number not in shown)


def is_tiny(width: int, height: int) -> bool:
    return width < TINY_COLUMNS or height < SHORT_ROWS


def what_is_hidden(hidden: tuple[str, ...]) -> str:
    """The sentence that a small screen owes."""
    return "one pane fits here; also: " + "  ".join(f"{number} {NAMES[number]}" for number in hidden)
