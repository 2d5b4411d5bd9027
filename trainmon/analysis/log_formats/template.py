"""Templates of step lines: `iter {step}: loss {loss}, time {step_time_ms}ms`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainmon.analysis.log_formats.learned import names
from trainmon.analysis.log_formats.learned.line import Line, read
from trainmon.analysis.log_formats.learned.names import DIVIDER, Number, numbers

FIELD = re.compile(r"\{(\w{0,40})\}")
GROUPED = r"\d{1,3}(?:,\d{3}){1,6}(?!\d)(?:\.\d{0,24})?|"
"""`12,345`; not where the template has a comma and the next field: there it is two values."""
VALUE = r"[-+]?(?:(?:%s\.?\d[\d._]{0,24})(?:[eE][-+]?\d{1,3})?[KMBGTk]?|[nN][aA][nN]|[iI](?:nf|NF)\w{0,5})"
LONGEST_WORD = 300
VARYING = re.compile(r"[\w.:]*\d[\w.:%+-]*|[█▏▎▍▌▋▊▉━╸╺]+|[{}]")
"""What differs from line to line besides the numbers that are read."""
BATCHES = ("epoch", "batches", "batch")
"""Instead of the step, which is then epoch × batches + batch."""
LONGEST = 1_000
"""Characters of a template or an expression."""
NO_PREFIX = re.compile(r"^\{\}[^\w{}]*\s")
UNIT = re.compile(r"[a-zA-Z]{1,4}(?:/[a-z]{1,4})?(?![\w/])")
TOTALS = {"step": "target_step", "batch": "batches", "epoch": "epochs"}
OPENING = " :=\t'\"[(<>"


class Cell(NamedTuple):
    """A number of a line, and the field that it is; an empty field for a number of no interest."""

    start: int
    end: int
    field: str = ""


def template(example: str) -> str | None:
    """The template of a step line: its numbers by their names, others as `{}`. None where no step is found."""
    line = read(example)
    return None if line is None or not line.counts else template_of(example, cells_of(example, values(line)))


def template_of(example: str, cells: Sequence[Cell]) -> str | None:
    """The template that reads these cells of a line, or of a very long line, those that fit. None where none of them
    is the step."""
    fields = {cell.field for cell in cells if cell.field}
    if "step" not in fields and not fields >= set(BATCHES):
        return None
    text = _shortest(example, cells)
    others = [cell for cell in cells if cell.field and cell.field not in ("step", *BATCHES)]
    if len(text) <= LONGEST or not others:
        return text
    step = next(cell.start for cell in cells if cell.field in {"step", "batch"})
    farthest = max(others, key=lambda cell: abs(cell.start - step))
    return template_of(example, [cell._replace(field="") if cell is farthest else cell for cell in cells])


def _shortest(example: str, cells: Sequence[Cell]) -> str:
    """The shortest template that finds the cells where they are."""
    named = list(cells)
    while not named[-1].field:
        del named[-1]
    label = example[: next(cell.start for cell in named if cell.field)].rstrip(OPENING)
    at = len(label) - len(DIVIDER.split(label)[-1].lstrip())  # what stands before the first name differs: times, ranks
    whole = _joined(example, named, 0)
    for text in (NO_PREFIX.sub("", _joined(example, named, at)), NO_PREFIX.sub("", whole)):
        found = re.search(expression(text), example)
        if found is not None and all(cell.start == found.start(cell.field) for cell in named if cell.field):
            return text
    return whole  # `{step} : {loss}` also matches a time


def _joined(example: str, cells: Iterable[Cell], at: int) -> str:
    """The example from a position on, with fields in place of its cells."""
    parts: list[str] = []
    for start, end, field in cells:
        if start >= at:
            parts += [_varying(example[at:start]), f"{{{field}}}"]
            at = end
    unit = UNIT.match(example, at)
    return re.sub(r"\s+", " ", "".join((*parts, unit[0] if unit else ""))).lstrip()


def _varying(text: str) -> str:
    """A text before a field, with `{}` for what varies. Of the word that touches the field, only its numbers vary."""
    return VARYING.sub(lambda word: re.sub(r"\d+", "{}", word[0]) if word.end() == len(text) else "{}", text)


def expression(template: str) -> str:
    """The regular expression of a template. A space matches any space, `{}` matches one word or number.

    `{}` ends at the character that follows it in the template. Otherwise a line that does not match, and has that
    character many times, would take minutes.
    """
    parts, at = [], 0
    for found in FIELD.finditer(template):
        parts.append(_literal(template[at : found.start()]))
        at, after = found.end(), template[found.end() : found.end() + 2]
        if found[1]:
            parts.append(f"(?P<{found[1]}>{VALUE % ('' if after == ',{' else GROUPED)})")
        elif FIELD.match(template, at) or after[1:] == " ":
            parts.append(rf"\S{{1,{LONGEST_WORD}}}?")
        else:
            word = rf"[^\s{re.escape(after[:1].strip())}]{{1,{LONGEST_WORD}}}"
            parts.append(word + (r"(?!\S)" if after[:1] == " " else ""))
    return "".join((*parts, _literal(template[at:])))


def _literal(text: str) -> str:
    return r"\s{0,240}".join(re.escape(part) for part in re.split(r"\s+", text))


def values(line: Line) -> dict[str, float]:
    """What a learned line says, by field."""
    epoch = line.epoch if line.batch is not None else None
    fields = {"step": line.step, "batch": line.batch, "loss": line.loss, **dict(line.metrics), "epoch": epoch}
    return {field: value for field, value in fields.items() if value is not None}


def cells_of(example: str, values: Mapping[str, float]) -> list[Cell]:
    """Where each number of a line is, and the field that has its value; of equal numbers, the one with its name."""
    found = [one for one in numbers(example) if not example.startswith("%", _end(one))]
    fields: dict[int, str] = {}
    for field, value in values.items():
        scales = {field: 1, "step_time_ms": 1000} if field == "step_time_s" else {field: 1}
        same = [
            (one, name)
            for name, scale in scales.items()
            for one in found
            if one.start not in fields
            and (math.isclose(one.value / scale, value, rel_tol=1e-9) or (math.isnan(one.value) and math.isnan(value)))
        ]
        if same:
            one, name = max(same, key=lambda pair: _has_name(pair[0], field))
            fields[one.start] = name
    cells: list[Cell] = []
    for one in numbers(example):
        cells.append(Cell(one.start, _end(one), fields.get(one.start, "")))
        if one.total is not None:
            at = example.index(one.total, _end(one))
            cells.append(Cell(at, at + len(one.total), TOTALS.get(cells[-1].field, "")))
    return cells


def _end(number: Number) -> int:
    return number.start + len(number.text) + len(number.scale)


def _has_name(number: Number, field: str) -> bool:
    name = number.name
    if field in ("step", "batch"):
        return names.counter(name) is not None
    if field in ("epoch", "loss"):
        return names.is_epoch(name) if field == "epoch" else names.loss(name) is not None
    return names.metric(name) == field or (names.speed(name, number.unit) or ("",))[0] == field
