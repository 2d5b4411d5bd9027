"""Tables and facts: columns that fit a width, their heads, cells and fields, a cache of rows. Pure."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from trainmon.lib import Seconds, clean, scrub, short_size, shorten
from trainmon.model import WANDB
from tui.style import (
    NOT_APPLICABLE,
    SENTENCE_LINES,
    UNKNOWN,
    Line,
    Link,
    Linked,
    Row,
    Span,
    calm_age,
    percent,
    short,
    width_of,
)
from tui.views.filters import Column, Context, Entry, Value, field_of

# ---- A table ---------------------------------------------------------------------------------------------------------

AGES_EVERY: Seconds = 10.0
"""How often a text is redrawn in which only ages changed: most ages change every second."""


def value(text: str) -> Span:
    """A cell without a sign. It is dim if the value is unknown or does not apply."""
    return Span(text, "dim" if text.rstrip() in (UNKNOWN, NOT_APPLICABLE) else "")


def warned(text: str, style: str, space: str = " ") -> Span:
    """A cell with a sign behind its text if its style warns, else with a blank in its place."""
    return Span(text + ("!" if style in ("warn", "crit") else space), style)


def heads(columns: Sequence[Column[Entry, Context]], sort: str = "") -> str:
    """The names of the columns, above their cells."""
    return "".join(column.align(column.headed(sort)) for column in columns)


def row_cells(columns: Sequence[Column[Entry, Context]], entry: Entry, context: Context, style: str = "") -> list[Span]:
    """The cells of one entry. A `style` replaces those of the cells."""
    shown = ((column, value("") if column.cell is None else column.cell(entry, context)) for column in columns)
    return [Span(column.align(cell.text), style or cell.style) for column, cell in shown]


VALUES: Mapping[str | None, tuple[int, Callable[[Any], str]]] = {
    None: (13, lambda text: shorten(clean(text), 12)),
    "": (8, short),
    "%": (6, lambda number: percent(number, 100.0)),
    "s": (8, lambda seconds: calm_age(max(0.0, seconds))),
    "B": (8, short_size),
    "GiB": (8, lambda number: short_size(number * 2.0**30)),
}
"""How wide a column of a field is, and how it shows a value, by the unit."""


def shown_column(column: Column[Entry, Context]) -> Column[Entry, Context]:
    """The column as it is, or one that shows what rows are sorted by."""
    width, text = VALUES[column.unit]

    def cell(entry: Entry, context: Context) -> Span:
        found = next(iter(column.values(entry, context)), None)
        return value(NOT_APPLICABLE if found is None else text(found))

    simple = column._replace(head=column.head or column.name.upper(), width=width, cell=cell, left=column.unit is None)
    return simple if column.cell is None else column


GAP: Column[Any, Any] = Column("", width=1)
"""Before a text: the column before it may end with a number."""


def chosen_columns(
    fields: Sequence[Column[Entry, Context]], names: Iterable[str], width: int, name_width: int = 12
) -> tuple[Column[Entry, Context], ...]:
    """The columns that a person chose, in that order, as many as fit beside a name."""
    chosen = [shown_column(column) for name in names if (column := field_of(name, fields)) is not None]
    found = [shown for column in chosen for shown in ((GAP, column) if column.left else (column,))]
    while found and sum(column.width for column in found) > width - 2 - name_width:
        found.pop()
    return tuple(found)


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


def fields_of(columns: Iterable[Column[Any, Any]], *others: Column[Any, Any]) -> tuple[Column[Any, Any], ...]:
    """What the rows of a table are filtered and sorted by: the first one, its usual columns, then the others."""
    return (*others[:1], *(column for column in columns if column.name), *others[1:])


FORMULA = ("=", "+", "-", "@")
"""A spreadsheet runs a cell that begins with one of them. https://owasp.org/www-community/attacks/CSV_Injection"""


def csv_text(rows: Iterable[Iterable[Value]]) -> str:
    """Rows as CSV. What could be a formula gets a quote in front, as spreadsheets mark a text."""
    written = io.StringIO()
    csv.writer(written).writerows([[_csv_cell(value) for value in row] for row in rows])
    return written.getvalue()


def _csv_cell(value: Value) -> str:
    if not isinstance(value, str):
        return "" if value is None else f"{value:.15g}"
    text = clean(value, 10_000).strip()
    return f"'{text}" if text.startswith(FORMULA) else text


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


# ---- facts as lines --------------------------------------------------------------------------------------------------

LABEL = 14
NO_STYLES: Mapping[str, str] = {}

FROM_LOG = " (found, not in the config)"
"""The mark of a setting that no config names."""


def safe(text: str) -> str:
    """Text from a node without control characters and secrets."""
    return scrub(clean(text))


def apart(*sections: Iterable[Line | Linked]) -> Iterator[Line | Linked]:
    """These sections, with an empty line between two."""
    for number, section in enumerate(sections):
        if number:
            yield ()
        yield from section


def fact(label: str, text: str, width: int, style: str = "") -> Line:
    return (Span(f"{label:<{LABEL}}", "dim"), Span(shorten(text, width - LABEL), style))


def facts(texts: Mapping[str, str | None], width: int, styles: Mapping[str, str] = NO_STYLES) -> Iterator[Line]:
    """Facts, by their labels. One without a text is left out."""
    return (fact(label, text, width, styles.get(label, "")) for label, text in texts.items() if text is not None)


def wrapped_fact(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    """A fact over several lines: a fingerprint or a command must not be cut."""
    lines = textwrap.wrap(text, max(8, width - LABEL), break_on_hyphens=False)[:SENTENCE_LINES]
    return (fact("" if index else label, line, width, style) for index, line in enumerate(lines))


def optional_fact(label: str, text: str | None, width: int, style: str = "") -> Iterator[Line]:
    """A wrapped fact with a text from elsewhere; nothing without a text."""
    return wrapped_fact(label, safe(text or ""), width, style)


def more_fact(hidden: int, width: int, hint: str = "") -> Iterator[Line]:
    """The number of entries that are not shown; nothing if all are shown."""
    if hidden > 0:
        yield fact("", f"and {hidden} more{hint}", width, "dim")


def fact_text(lines: Sequence[str], index: int) -> str:
    """The text of a fact, without its label, from all its lines."""
    blank = " " * LABEL
    start, end = index, index + 1
    while start > 0 and lines[start].startswith(blank):
        start -= 1
    while end < len(lines) and lines[end].startswith(blank):
        end += 1
    return " ".join(line[LABEL:].strip() for line in lines[start:end])


def link_label(label: str) -> Line:
    """The label of a line that is a link. The arrow shows it without colours."""
    return (Span(f"{label:<{LABEL - 2}}", "dim"), Span("→ ", "accent"))


def linked_fact(label: str, link: Link, text: str, width: int, *after: Span) -> Linked:
    """A fact that is a link. Its text is cut so that the spans `after` it fit."""
    shown = shorten(safe(text), width - LABEL - width_of(after))
    return Linked(link, (*link_label(label), Span(shown, "accent"), *after))


def log_named(log: str) -> str:
    """The name of a log in its [[run]] table."""
    return "the console log in W&B" if log == WANDB else clean(log)
