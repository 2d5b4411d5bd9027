"""Tables: their columns, which filter and sort their rows, cells, and a cache of rows; and facts as lines. Pure.

A table lists its columns once. Their names filter and sort its rows, and choose what it shows. A filter:
`status:healthy user:me temp>85 node~gpu-0 !drained`.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import operator
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from trainmon.lib import Seconds, cell_width, clean, natural_key, scrub, short_size, shorten
from trainmon.model import WANDB
from tui.style import (
    DOWN,
    NOT_APPLICABLE,
    SENTENCE_LINES,
    UNKNOWN,
    UP,
    Line,
    Link,
    Linked,
    Row,
    Span,
    calm_age,
    pad,
    percent,
    short,
    width_of,
)

# ---- columns, filters and orders -------------------------------------------------------------------------------------

Entry = TypeVar("Entry")
"""What a row is about."""

Context = TypeVar("Context")
"""What else a cell or a field needs: the time, or the State."""

Value = str | float | None


class Column(NamedTuple, Generic[Entry, Context]):
    """What the rows of a table are filtered and sorted by, and a column that shows it."""

    name: str
    """Empty: it is only shown."""
    values: Callable[[Entry, Context], Iterable[Value]] = lambda *_: ()
    """Of an entry: one, or several, such as the temperatures of a node. Rows are sorted by the first."""
    unit: str | None = None
    """Of a number: one of UNITS. None: the values are texts."""
    upwards: bool = False
    """Whether the least number comes first. Texts always start with A."""
    head: str = ""
    """What stands above its cells, if that is not its name. Filters know it as well."""
    width: int = 0
    cell: Callable[[Entry, Context], Span] | None = None
    """What its cells show; None: the first of its values, if a person chooses it."""
    from_width: int = 0
    """The narrowest pane that has it."""
    left: bool = False
    """Whether heads and cells are aligned left."""

    @property
    def label(self) -> str:
        """Its name on the screen: that of its head."""
        return (self.head or self.name).strip().lower().replace(" ", "-")

    def arrow(self, sort: str) -> str:
        """The direction, if rows are sorted by it."""
        is_reversed = sort.startswith("-")
        return (
            ""
            if sort.removeprefix("-") != self.name
            else UP
            if (self.unit is None or self.upwards) is not is_reversed
            else DOWN
        )

    def headed(self, sort: str) -> str:
        """Its head, with an arrow if rows are sorted by it."""
        head, arrow = self.head or self.name, self.arrow(sort)
        return head.rstrip() + arrow if arrow else head

    def align(self, text: str) -> str:
        return pad(text, self.width) if self.left else " " * (self.width - cell_width(text)) + text


UNITS: Mapping[str, dict[str, float]] = {
    "": {"k": 1e3, "m": 1e6, "g": 1e9},
    "%": {"%": 1.0},
    "s": {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0},
    "B": {"k": 2.0**10, "m": 2.0**20, "p": 2.0**50, "t": 2.0**40, "g": 2.0**30},
    "GiB": {"m": 2.0**-10, "t": 2.0**10, "g": 1.0},
}
"""The units of numbers, with the suffixes that a filter may write: counts, percent, times, bytes."""

Compare = Callable[[Any, Any], bool]
TEXT: Mapping[str, Compare] = {":": str.startswith, "=": operator.eq, "~": operator.contains}
NUMBER: Mapping[str, Compare] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq, ":": operator.eq,
}  # fmt: skip
NAME = r"([a-z]+(?:[/-][a-z]+)*)"
WORD = re.compile(rf'(!?)(?:{NAME}(>=|<=|[:~=<>]))?(?:"([^"]*)"?|(\S*))', re.IGNORECASE)
AMOUNT = re.compile(r"([+-]?\d+(?:\.\d+)?)([a-z%]?)")


class Word(NamedTuple):
    """One condition."""

    is_not: bool
    fields: tuple[Column[Any, Any], ...]
    """Those of which any must match: the named one, or all texts."""
    compare: Compare
    wanted: str | float

    def is_match(self, values_of: Callable[[Column[Any, Any]], Iterable[str | float]]) -> bool:
        found = (self.compare(value, self.wanted) for field in self.fields for value in values_of(field))
        return any(found) is not self.is_not


class Filter(NamedTuple):
    """The conditions of a filter. One with a mistake has none: it filters nothing away."""

    words: tuple[Word, ...] = ()
    problem: str = ""


@lru_cache(64)
def parse_filter(query: str, fields: tuple[Column[Any, Any], ...]) -> Filter:
    """The filter that a person wrote. A word with blanks, or one that looks like a field, is written in quotes."""
    words: list[Word] = []
    texts = tuple(field for field in fields if field.unit is None)
    for no, name, sign, quoted, plain in WORD.findall(query):
        text, field = (quoted or plain).lower(), field_of(name.lower(), fields)
        wanted = text if field is None or field.unit is None else amount(text, field.unit)
        signs = TEXT if field is None or field.unit is None else NUMBER
        if name and field is None and not name.isalpha():
            text = f"{name}{sign}{text}".lower()
        elif name and field is None:
            names = [one.label for one in fields]
            close = difflib.get_close_matches(name.lower(), names, n=1)
            hint = f"did you mean {close[0]}{sign}?" if close else f"quote a text with {sign} or use {', '.join(names)}"
            return Filter(problem=f'no field "{name}"; {hint}')
        if field is not None and sign not in signs:
            kind, right = ("number", f"{name}> or {name}<") if signs is NUMBER else ("text", f"{name}: or {name}~")
            return Filter(problem=f"{name} is a {kind}: write {right}")
        if field is not None and (not text or wanted is None):
            suffix = [*UNITS[field.unit]][-1] if field.unit else ""
            example = f"a number, such as 5{suffix}" if signs is NUMBER else "a text"
            return Filter(problem=f"{name}{sign} needs {example}" + (f', not "{text}"' if text else ""))
        if text and wanted is not None:
            words.append(Word(bool(no), texts if field is None else (field,), signs[sign or "~"], wanted))
    return Filter(tuple(words))


def field_of(name: str, fields: Iterable[Column[Entry, Context]]) -> Column[Entry, Context] | None:
    """The column with this name, or with this head."""
    by_name = sorted(fields, key=lambda one: one.name != name)
    return next((one for one in by_name if name in {one.name, one.label}), None)


def amount(text: str, unit: str) -> float | None:
    """A number with a suffix of its unit; None: it is none."""
    match = AMOUNT.fullmatch(text)
    factor = None if match is None else (UNITS[unit] | {"": 1.0}).get(match[2])
    return None if match is None or factor is None else float(match[1]) * factor


def filtered(
    entries: Iterable[Entry], query: str, fields: tuple[Column[Entry, Context], ...], context: Context
) -> list[Entry]:
    """The entries that match every word of a filter."""
    words = parse_filter(query, fields).words

    def is_match(entry: Entry) -> bool:
        @cache  # several words read the same texts
        def values_of(field: Column[Entry, Context]) -> list[str | float]:
            values = (value for value in field.values(entry, context) if value is not None)
            return [value.lower() if isinstance(value, str) else value for value in values]

        return all(word.is_match(values_of) for word in words)

    return [entry for entry in entries if is_match(entry)] if words else list(entries)


def ordered(
    entries: Sequence[Entry], sort: str, fields: tuple[Column[Entry, Context], ...], context: Context
) -> list[Entry]:
    """The entries by a field; a `-` before its name reverses the order. Entries without a value are last, and equal
    ones keep their order. A name that is no field is the order that they have."""
    name, is_reversed = sort.removeprefix("-"), sort.startswith("-")
    field = field_of(name, fields)
    if field is None:
        return list(reversed(entries)) if is_reversed else list(entries)
    found = [(next(iter(field.values(entry, context)), None), entry) for entry in entries]
    known = [(_sort_key(value), entry) for value, entry in found if value is not None]
    known.sort(key=operator.itemgetter(0), reverse=(field.unit is None or field.upwards) is is_reversed)
    return [entry for _, entry in known] + [entry for value, entry in found if value is None]


def sort_text(sort: str, fields: Iterable[Column[Any, Any]]) -> str:
    """`worst`; `loss ↓` has the greatest first."""
    name, is_reversed = sort.removeprefix("-"), sort.startswith("-")
    field = field_of(name, fields)
    if field is None:
        return f"{name} reversed" if is_reversed else name
    return f"{field.label} {field.arrow(sort)}"


def _sort_key(value: str | float) -> Any:
    """A number that is not one, such as a loss, is the greatest."""
    return natural_key(value.lower()) if isinstance(value, str) else math.inf if math.isnan(value) else value


COMPLETIONS = 40
"""The most values that are offered."""


def completions(
    typed: str, entries: Sequence[Entry], fields: tuple[Column[Entry, Context], ...], context: Context
) -> Iterator[str]:
    """What the last word of a filter may become: a field, or one of its values in the table."""
    head, blank, word = typed.rpartition(" ")
    match = re.fullmatch(rf'(!?)(?:{NAME}([:~=]))?([^"]*)', word, re.IGNORECASE)
    if match is None:
        return
    no, name, sign, text = match.groups()
    field = field_of((name or "").lower(), fields)
    start = f"{head}{blank}{no}"
    if not name:
        yield from (f"{start}{one.label}{':' if one.unit is None else '>'}" for one in fields
                    if one.label.startswith(text.lower()) or one.name.startswith(text.lower()))  # fmt: skip
    elif field is not None and field.unit is None:
        values = {clean(str(value)) for entry in entries for value in field.values(entry, context) if value}
        for value in sorted(values, key=lambda value: natural_key(value.lower()))[: 100 * COMPLETIONS]:
            if value.lower().startswith(text.lower()):
                yield f'{start}{name}{sign}"{value}"' if " " in value else f"{start}{name}{sign}{value}"


# ---- the columns of a width, and their cells -------------------------------------------------------------------------

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

    def head(self, first: Column[Any, Any], sort: str = "") -> Span:
        """The names of its columns, of which the first one is that of the names."""
        return Span(f"  {first.headed(sort):<{self.name}}{heads(self.columns, sort)}", "head")


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


def facts(texts: Mapping[str, str | None], width: int, styles: Mapping[str, str] = {}) -> Iterator[Line]:
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
