"""A table: columns that fit a width, their heads and cells, a text filter, and a cache of rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from trainmon.lib import Seconds, cell_width
from tui.style import NOT_APPLICABLE, UNKNOWN, Span, pad
from tui.widgets import Row

AGES_EVERY: Seconds = 10.0
"""How often a text is redrawn in which only ages changed: most ages change every second."""

Entry = TypeVar("Entry")
"""What a row is about."""

Context = TypeVar("Context")
"""What else a cell needs: the time, or the State."""


class Column(NamedTuple, Generic[Entry, Context]):
    """A column: its head, its width, what its cells show, and the narrowest pane that has it."""

    name: str
    width: int
    cell: Callable[[Entry, Context], Span]
    from_width: int = 0
    left: bool = False
    """Whether heads and cells are aligned left."""

    def align(self, text: str) -> str:
        return pad(text, self.width) if self.left else " " * (self.width - cell_width(text)) + text


def value(text: str) -> Span:
    """A cell without a sign. It is dim if the value is unknown or does not apply."""
    return Span(text, "dim" if text.rstrip() in (UNKNOWN, NOT_APPLICABLE) else "")


def warned(text: str, style: str, space: str = " ") -> Span:
    """A cell with a sign behind its text if its style warns, else with a blank in its place."""
    return Span(text + ("!" if style in ("warn", "crit") else space), style)


def heads(columns: Sequence[Column[Entry, Context]]) -> str:
    """The names of the columns, above their cells."""
    return "".join(column.align(column.name) for column in columns)


def row_cells(columns: Sequence[Column[Entry, Context]], entry: Entry, context: Context, style: str = "") -> list[Span]:
    """The cells of one entry. A `style` replaces those of the cells."""
    shown = ((column, column.cell(entry, context)) for column in columns)
    return [Span(column.align(cell.text), style or cell.style) for column, cell in shown]


class Table(NamedTuple, Generic[Entry, Context]):
    """The columns that fit a width, and the cells of the id and the name in front of them."""

    width: int
    name: int
    columns: tuple[Column[Entry, Context], ...]
    id: int = 0

    @property
    def rest(self) -> int:
        """Cells behind the last column; the first two of a row are its sign."""
        return self.width - 2 - self.id - self.name - sum(column.width for column in self.columns)


def filtered(entries: Iterable[Entry], query: str, text_of: Callable[[Entry], str]) -> list[Entry]:
    """The entries whose text has every word of a filter, in any case."""
    words = query.lower().split()
    texts = ((entry, text_of(entry).lower() if words else "") for entry in entries)
    return [entry for entry, text in texts if all(word in text for word in words)]


class RowCache:
    """Keeps the row of every entry that did not change: the same row is neither laid out nor compared again."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, Row]] = {}

    def rows(self, entries: Iterable[tuple[str, object, Callable[[], Row]]]) -> list[Row]:
        """The rows, each from its key, the values it depends on, and what lays it out."""
        previous, self._kept = self._kept, {}
        for key, depends_on, make in entries:
            old = previous.get(key)
            self._kept[key] = old if old is not None and old[0] == depends_on else (depends_on, make())
        return [row for _, row in self._kept.values()]
