"""Templates of step lines: `iter {step}: loss {loss}, time {step_time_ms}ms`; and the formats of the config. Pure."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainmon.analysis.log_formats.learned import names
from trainmon.analysis.log_formats.learned.line import Line, read
from trainmon.analysis.log_formats.learned.names import DIVIDER, Number, numbers
from trainmon.analysis.log_formats.line import Format, StepLine, number, whole
from trainmon.lib import ConfigError

# ---- templates of step lines -----------------------------------------------------------------------------------------

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


# ---- formats of the config: a template of a step line, or a regular expression whose groups say what is what ---------

COUNTS = ("step", "target_step", "skipped", "nan_iterations")
NUMBERS = ("loss", "grad_norm", "tokens_per_s", "samples_per_s", "step_time_s", "learning_rate", "loss_scale", "epoch")
NAMES = (*COUNTS, *NUMBERS, "step_time_ms", "batch", "batches", "epochs")
"""What a format may read."""

CLASSES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
LEADING_FLAGS = re.compile(r"\(\?([aimsux]{1,6})\)")


def custom_format(name: str, *, pattern: str | None = None, template: str | None = None) -> Format:
    """A format from one of the two.

    Raises:
        ConfigError: it can be none; the sentence says why.
    """
    if (pattern is None) == (template is None):
        raise ConfigError([f"log format {name!r}: it needs either a template or a pattern"])
    return named_regex(name, pattern) if pattern is not None else from_template(name, template or "")


def from_template(name: str, template: str) -> Format:
    """A format from a template of a step line: `iter {step}: loss {loss}, time {step_time_ms}ms`.

    Raises:
        ConfigError: it can be none; the sentence says why.
    """
    if len(template) > LONGEST:
        raise ConfigError([f"log format {name!r}: the template is longer than {LONGEST} characters"])
    fields = [field for field in FIELD.findall(template) if field]
    _check_names(name, fields, "{%s}")
    for field in fields:
        if fields.count(field) > 1:
            raise ConfigError([f"log format {name!r}: {{{field}}} stands twice in the template"])
    return _format(name, expression(template))


def named_regex(name: str, pattern: str) -> Format:
    """A format from a regular expression with named groups.

    Raises:
        ConfigError: it can be none; the sentence says why.
    """
    if len(pattern) > LONGEST:
        raise ConfigError([f"log format {name!r}: the expression is longer than {LONGEST} characters"])
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ConfigError([f"log format {name!r}: not a regular expression: {error}"]) from error
    _check_names(name, list(groups), "(?P<%s>…)")
    return _format(name, pattern)


def _check_names(name: str, fields: list[str], shown: str) -> None:
    for field in fields:
        if field not in NAMES:
            near = difflib.get_close_matches(field, NAMES, 1, 0.5)
            fix = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(NAMES)}"
            raise ConfigError([f"log format {name!r}: no group {field!r}; {fix}"])
    if "step" not in fields and not set(BATCHES) <= set(fields):
        what = "expression has no group" if "P<" in shown else "template has no"
        raise ConfigError([f"log format {name!r}: the {what} {shown % 'step'}, so it would never advance"])


def _format(name: str, pattern: str) -> Format:
    compiled = re.compile(pattern)
    if compiled.match("") is not None:
        raise ConfigError([f"log format {name!r}: the expression matches an empty line"])

    def parse(line: str) -> StepLine | None:
        found = compiled.search(line)
        groups = {} if found is None else found.groupdict()
        counts = {name: whole(groups.get(name)) for name in COUNTS}
        epoch, batches, batch = (whole(groups.get(name)) for name in BATCHES)
        if counts["step"] is None and epoch is not None and batches is not None and batch is not None:
            counts["step"] = epoch * batches + batch
        if counts["step"] is None:
            return None
        numbers = {name: number(groups.get(name)) for name in NUMBERS}
        if (milliseconds := number(groups.get("step_time_ms"))) is not None:
            numbers["step_time_s"] = milliseconds / 1000
        return StepLine(**counts, **numbers)  # type: ignore[arg-type]

    return Format(name, _for_nodes(name, pattern), parse, pattern)


def _for_nodes(name: str, pattern: str) -> str:
    """The same expression for the nodes' old Pythons, fit to be joined with others by `|`."""
    bare = CLASSES.sub("x", pattern)
    if re.search(r"\(\?>|[*+?}]\+", bare):
        raise ConfigError([f"log format {name!r}: possessive and atomic groups need Python 3.11, nodes may have 3.6"])
    if "(?P=" in bare or "(?(" in bare or re.search(r"\\[1-9]", pattern):
        raise ConfigError([f"log format {name!r}: the expression may not refer back to a group"])
    unnamed = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    flags = LEADING_FLAGS.match(unnamed)
    scoped = "".join(flag for flag in flags[1] if flag in "imsx") if flags else ""
    return f"(?{scoped}:{unnamed[flags.end() if flags else 0 :]})"
