"""What the main screen shows at which size: pure, so that every width is a value in a test."""

from __future__ import annotations

from typing import NamedTuple

TINY_COLUMNS = 60
TWO_COLUMNS = 120
THREE_COLUMNS = 180
SHORT_ROWS = 16

NAMES = {"1": "Runs", "2": "GPUs", "3": "Disk", "4": "Log"}


class Shape(NamedTuple):
    """The panes in sight, column by column, and the numbers of the panes that do not fit."""

    columns: tuple[tuple[str, ...], ...]
    hidden: tuple[str, ...] = ()

    @property
    def panes(self) -> tuple[str, ...]:
        return tuple(pane for column in self.columns for pane in column)


def shape(width: int, height: int, current: str, lower: str, *, zoomed: bool = False) -> Shape:
    """`current` has the focus; `lower` is what was last chosen for the lower half (2, 3 or 4)."""
    if zoomed or width < TINY_COLUMNS or height < SHORT_ROWS:
        return Shape(((current,),), tuple(number for number in NAMES if number != current))
    if width < TWO_COLUMNS:
        return Shape((("1", lower),), tuple(number for number in NAMES if number not in {"1", lower}))
    if width < THREE_COLUMNS:
        return Shape((("1", "4"), ("2", "3")))
    return Shape((("1", "4"), ("2", "3"), ("run",)))


def is_tiny(width: int, height: int) -> bool:
    return width < TINY_COLUMNS or height < SHORT_ROWS


def what_is_hidden(hidden: tuple[str, ...]) -> str:
    """The sentence that a small screen owes."""
    return "one pane fits here; also: " + "  ".join(f"{number} {NAMES[number]}" for number in hidden)
