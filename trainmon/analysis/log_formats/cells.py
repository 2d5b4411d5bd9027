"""The numbers of a log line as cells that a person names: from the named cells of one line comes a template. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from trainmon.analysis.log_formats.custom import NAMES, from_template
from trainmon.analysis.log_formats.learned.line import read
from trainmon.analysis.log_formats.learned.names import MOST_NUMBERS, NO_NUMBER, NUMBER, numbers, whole
from trainmon.analysis.log_formats.read import LEARNED, ReadLine, plain
from trainmon.analysis.log_formats.template import FIELD, UNIT, VARYING, Cell, cells_of, expression, template_of, values
from trainmon.lib import group_by

ANY_NUMBER = re.compile(rf"(?:{NO_NUMBER})|(?<![\w.-])(?:[A-Za-z_]{{1,20}}(?=\d))?(?P<number>{NUMBER})(?![\w-])")
"""Also one that is glued to a word (`ep003`), or an average in brackets."""
SIMILAR = 3
"""Lines of one shape from which a format is suggested."""
COMPARED = 40
"""Lines of one shape that are compared at most."""


def cells(line: str, read: Mapping[str, float] | None = None) -> tuple[Cell, ...]:
    """Every number of a line, with the fields of the values that were read in it."""
    known = cells_of(line, read or {})
    taken = {at for cell in known for at in range(cell.start, cell.end)}
    glued = [
        Cell(found.start("number"), found.end("number"))
        for found in ANY_NUMBER.finditer(line)
        if found["number"] and taken.isdisjoint(range(*found.span("number")))
    ]
    return tuple(sorted([*known, *glued])[:MOST_NUMBERS])


def cells_read(one: ReadLine) -> tuple[Cell, ...]:
    """The numbers of a line, with the fields that were read."""
    if one.found is None:
        return cells(one.text)
    if one.format == LEARNED and (line := read(one.text)) is not None:
        return cells(one.text, values(line))
    return cells(one.text, {name: value for name in NAMES if (value := getattr(one.found, name, None)) is not None})


def cells_by(template: str, line: str) -> tuple[Cell, ...] | None:
    """The numbers of a line, with the fields that a template reads; None for a line that it does not match."""
    found = re.search(expression(template), line)
    if found is None:
        return None
    read = {
        name: (found.start(name), found.start(name) + len(text.rstrip(",._")))
        for name, text in found.groupdict().items()
    }
    others = [
        cell for cell in cells(line) if all(cell.end <= start or cell.start >= end for start, end in read.values())
    ]
    return tuple(sorted([*others, *(Cell(*span, name) for name, span in read.items())]))


def named(cells: Sequence[Cell], number: int, field: str) -> tuple[Cell, ...]:
    """The cells after one of them got this field. A field is of one cell only; an empty field removes the name."""
    return tuple(
        cell._replace(field=field) if at == number else cell._replace(field="" if cell.field == field else cell.field)
        for at, cell in enumerate(cells)
    )


def template_by(line: str, cells: Iterable[Cell]) -> str | None:
    """The template that reads the named cells of a line. None where none of them is the step."""
    known = {one.start for one in numbers(line)}
    return template_of(line, [cell for cell in cells if cell.field or cell.start in known])


def steps_by(template: str, lines: Iterable[str]) -> list[int | None]:
    """The step that a template reads in each line.

    Raises:
        ConfigError: it can be no format; the sentence says why.
    """
    parse = from_template("template", template).parse
    return [None if (found := parse(plain(line))) is None else found.step for line in lines]


def suggested(lines: Iterable[str]) -> str | None:
    """A template of similar lines in which a number grows, for a log without a known step. It may be wrong."""
    shapes = group_by(map(plain, lines), lambda line: VARYING.sub("{}", line))
    groups = sorted(
        (group for group in shapes.values() if len(group) >= SIMILAR),
        key=lambda group: ("loss" in _learned(group[-1]), len(group)),
    )
    for group in reversed(groups):
        last, start = group[-1], _growing(group[-COMPARED:])
        read = cells(last, {field: value for field, value in _learned(last).items() if field != "step"})
        at = next((at for at, cell in enumerate(read) if cell.start == start), None)
        template = None if at is None else template_by(last, named(read, at, "step"))
        if template is not None and FIELD.sub("", template).strip():  # `{step}` alone matches every number
            return template
    return None


def _growing(lines: Sequence[str]) -> int | None:
    """Where in the last line a count is that grows in all of them. A timestamp grows, too, and is larger."""
    last, rows = lines[-1], [cells(line) for line in lines]
    growing = []
    for at, cell in enumerate(rows[-1]):
        texts = [line[row[at].start : row[at].end] for row, line in zip(rows, lines, strict=True) if at < len(row)]
        counts = [count for count in map(whole, texts) if count is not None]
        if len(counts) == len(lines) and sorted(counts) == counts and not UNIT.match(last, cell.end):
            growing.append((-len(set(counts)), counts[-1], cell.start))
    fastest = min(growing, default=(-1, 0, 0))
    return fastest[2] if fastest[0] < -1 else None


def _learned(line: str) -> dict[str, float]:
    found = read(line)
    return {} if found is None else values(found)
