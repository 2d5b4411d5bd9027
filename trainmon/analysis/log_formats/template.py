"""Templates of step lines: `iter {step}: loss {loss}, time {step_time_ms}ms`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from trainmon.analysis.log_formats.learned.line import Line, read
from trainmon.analysis.log_formats.learned.numbers import DIVIDER, numbers

FIELD = re.compile(r"\{(\w{0,40})\}")
VALUE = r"[-+]?(?:\d[\d,._]{0,24}(?:[eE][-+]?\d{1,3})?[KMBGTk]?|[nN]a[nN]|[iI]nf\w{0,5})"
ANYTHING = r"\S{1,80}?"
"""What `{}` matches: a number or a word that is of no interest."""
VARYING = re.compile(r"[\w.:]*\d[\w.:%+-]*|[█▏▎▍▌▋▊▉━╸╺]+|[{}]")
"""What differs from line to line besides the numbers that are read."""
UNIT = re.compile(r"[a-zA-Z]{1,4}(?:/[a-z]{1,4})?(?![\w/])")
OPENING = " :=\t'\"[(<>"


def template(example: str) -> str | None:
    """The template of a step line: its numbers by their names, others as `{}`. None where no step is found."""
    line = read(example)
    if line is None or not line.counts:
        return None
    named = list(_named(example, line))
    fields = {name for _, _, name in named}
    if "step" not in fields and not fields >= {"epoch", "batch", "batches"}:
        return None
    while named and not named[-1][2]:
        del named[-1]
    label = example[: next(start for start, _, name in named if name)].rstrip(OPENING)
    at = len(label) - len(DIVIDER.split(label)[-1].lstrip())  # what stands before the first name differs: times, ranks
    parts: list[str] = []
    for start, end, name in named:
        if start >= at:
            parts += [VARYING.sub("{}", example[at:start]), f"{{{name}}}"]
            at = end
    unit = UNIT.match(example, at)
    parts.append("" if unit is None else unit[0])
    return re.sub(r"\s+", " ", "".join(parts)).removeprefix("{} ").lstrip()


def expression(template: str) -> str:
    """The regular expression of a template. A space matches any space, `{}` matches one word or number."""
    parts, at = [], 0
    for found in FIELD.finditer(template):
        name = f"(?P<{found[1]}>{VALUE})" if found[1] else ANYTHING
        parts += [_literal(template[at : found.start()]), name]
        at = found.end()
    return "".join((*parts, _literal(template[at:])))


def _literal(text: str) -> str:
    return r"\s{0,120}".join(re.escape(part) for part in re.split(r"\s+", text))


def _named(example: str, line: Line) -> Iterator[tuple[int, int, str]]:
    """Where each number is, and the field that it is; empty for a number of no interest."""
    wanted: dict[str, float | None] = {
        "step": line.step,
        "batch": line.batch,
        "loss": line.loss,
        **dict(line.metrics),
        "epoch": line.epoch if line.batch is not None else None,
    }
    totals = {"step": "target_step", "batch": "batches", "epoch": "epochs"}
    for one in numbers(example):
        end = one.start + len(one.text) + len(one.scale)
        is_share = example.startswith("%", end)
        name = "" if is_share else next((name for name, value in wanted.items() if _is_same(one.value, value)), "")
        if not name and _is_same(one.value / 1000, wanted.get("step_time_s")):
            wanted["step_time_s"], name = None, "step_time_ms"
        wanted[name] = None
        yield one.start, end, name
        if one.total is not None:
            at = example.index(one.total, end)
            yield at, at + len(one.total), totals.get(name, "")


def _is_same(value: float, other: float | None) -> bool:
    return other is not None and (math.isclose(value, other, rel_tol=1e-9) or (math.isnan(value) and math.isnan(other)))
