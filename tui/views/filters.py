"""The columns of every table, its filter and its order: `status:healthy user:me temp>85 node~gpu-0 !drained`. Pure.

A table lists its columns once. Their names filter and sort its rows, and choose what it shows.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from trainmon.lib import cell_width, clean, natural_key
from tui.style import DOWN, UP, Span, pad

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
