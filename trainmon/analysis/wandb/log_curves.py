"""The log of a run as a source of curves: the numbers of its step lines, for each start of its trainer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.log_formats.learned import names
from trainmon.analysis.log_formats.line import number
from trainmon.analysis.log_formats.progress import PART_OF_LOSS
from trainmon.analysis.log_formats.read import LONGEST, plain
from trainmon.analysis.wandb import metric_names
from trainmon.analysis.wandb.client_file import FILES_AT_MOST
from trainmon.lib import Instant
from trainmon.model import CurvesGrew, Points, Progress, Run, StepSpan, WandbFile, WandbRun

ENTITY = "log"
"""The entity in the paths of such curves."""

FIRST = "0"
"""The id of what comes before any start."""

FIELDS = {
    **{name: name for name in ("loss", "grad_norm", "learning_rate", "tokens_per_s", "samples_per_s", "loss_scale")},
    PART_OF_LOSS: "loss",
    "step_time_s": "step_time_s",
}
"""What may be printed of a step, and the name of its curve."""

LONGEST_NAME = 60
NAMES_AT_MOST = 16
"""Curves of one run: those of FIELDS, and what else its lines name."""

VALUE = re.compile(
    r"[:=][ \t]{0,12}['\"]?([-+]?(?:\d[\d,]{0,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf)[KMBT]?)(?![\w:/.])"
)
NAME = re.compile(r"[A-Za-z][\w./-]*(?<!\.py)(?<!\.cc)(?<!\.cpp)(?: [A-Za-z][\w./()-]*){0,4}")
DIVIDER = re.compile(r"[|,;{}\[\]\t]|\s{2,}|\s-\s")
"""What stands before a name."""
SHAPE = bytes.maketrans(b"123456789", b"000000000")
"""Most lines of a log are the same but for their digits: they are examined once."""
ASIDE = frozenset(
    ("consumed", "eta", "rank", "dp", "tp", "pp", "cp", "ep", "memory", "mem", "max", "allocated", "reserved", "batch",
     "number", "v", "wall", "elapsed", "time", "runtime", "run")
)  # fmt: skip
"""Words of numbers that say nothing of the model, and of launchers."""


class Row(NamedTuple):
    """The numbers of one step."""

    start: str
    """The start of the trainer before it: the number of its line in the log. Empty: as before."""
    step: float
    at: Instant | None
    """When it was written, as it says itself."""
    values: Mapping[str, float]


def _is_own(name: str) -> bool:
    """Whether a name is neither of a counter nor of what FIELDS have."""
    words = names.words(name)
    known = (names.counter(words), names.metric(words), names.speed(words, ""))
    is_count = names.is_epoch(words) or names.is_target(words)
    is_loss = (names.loss(words) or 0) < names.NAMED_LOSS and "loss" in words
    is_own = known == (None,) * 3 and not (is_count or is_loss) and ASIDE.isdisjoint(words)
    return bool(words) and is_own and NAME.fullmatch(name) is not None


@lru_cache(512)
def _own_values(shape: bytes) -> tuple[tuple[slice, slice], ...]:
    """Where lines of this shape have a number of their own, and its name."""
    text, end, found = shape.decode(), 0, []
    for one in VALUE.finditer(text):
        begin, end = end, one.end()
        name = DIVIDER.split(text[begin : one.start()])[-1].strip(" '\"")
        if one.start() - begin <= LONGEST_NAME and _is_own(name):
            at = text.rindex(name, begin, end)
            found.append((slice(at, at + len(name)), slice(*one.span(1))))
    return tuple(found)


def row(before: Progress, after: Progress, text: str, at: Instant | None, spans: Sequence[StepSpan]) -> Row | None:
    """What a line has added to what is known of its step: from `before` to `after`. `spans`: those of the log then."""
    known = (*after.borrowed, *(before.printed if before.step == after.step else ()))
    curves = [FIELDS[name] for name in after.printed if name in FIELDS and name not in known]
    if after.step is None or curves in ([], ["step_time_s"]):
        return None
    found, text = {curve: getattr(after, curve) for curve in curves}, plain(text)[:LONGEST]
    for name, digits in _own_values(text.encode(errors="replace").translate(SHAPE)):
        if (value := number(text[digits])) is not None:
            found.setdefault(text[name], value)
    return Row(str(spans[-1].first_line) if spans and spans[-1].is_start else "", float(after.step), at, found)


def dated(rows: Sequence[Row], progress: Progress, at: Instant) -> list[Instant]:
    """When the rows were written, of which the last line is of `at`: those that do not say it, at the pace of the
    run."""
    times, step, pace = list[Instant](), float(progress.step or 0), progress.step_time_s or 0.0
    for one in reversed(rows):
        at = at - max(0.0, step - one.step) * pace if one.at is None else min(at, one.at)
        step = one.step
        times.append(at)
    return times[::-1]


def grown(run: Run, rows: Sequence[Row], times: Sequence[Instant], at: Instant) -> list[CurvesGrew]:
    """The points of these rows, for each start of the trainer."""
    names, start = (run.log_metrics.names, run.log_metrics.runs[0].id) if run.log_metrics else ((), FIRST)
    grew = list[CurvesGrew]()
    for begun, part in groupby(zip(rows, times, strict=True), lambda each: each[0].start):
        columns: dict[str, list[tuple[float, Instant, float]]] = {}
        for row, written_at in part:
            for name, value in row.values.items():
                columns.setdefault(name, []).append((row.step, written_at, value))
        start, names = begun or start, tuple(dict.fromkeys((*names, *columns)))[:NAMES_AT_MOST]
        points = {name: Points(*zip(*columns[name], strict=True)) for name in names if name in columns}
        if points:
            grew.append(CurvesGrew(run.name, f"{ENTITY}/{run.name}/{start}", at, points))
    return grew


def with_points(run: Run, event: CurvesGrew, host: str | None) -> WandbFile:
    """What is known of the curves of its log after these points."""
    file, points = run.log_metrics or WandbFile(format="the log"), event.points.values()
    known = next((one for one in file.runs if one.path == event.path), None)
    one = known or WandbRun(
        entity=ENTITY, project=run.name, id=event.path.rpartition("/")[2], name="", state="", host=host
    )  # fmt: skip
    if known is None or event.is_older:
        first = min(points, key=lambda each: each.steps[0])
        one = replace(one, name=f"from step {first.steps[0]:,.0f}", created_at=first.times[0])
    if known is None or not event.is_older:
        last = max(points, key=lambda each: each.steps[-1])
        latest = {name: each.values[-1] for name, each in event.points.items()}
        one = replace(one, step=int(last.steps[-1]), logged_at=last.times[-1], summary={**one.summary, **latest})
    runs = tuple(one if each is known else each for each in file.runs)
    if known is None:
        runs = ((*runs, one) if event.is_older else (one, *runs))[:FILES_AT_MOST]
    names = tuple(dict.fromkeys((*file.names, *event.points)))[:NAMES_AT_MOST]
    return replace(
        file, host=host, checked_at=event.at, logged_at=runs[0].logged_at, names=names, runs=runs,
        keys=file.keys if names == file.names else metric_names.choose(run.spec.charts, names),
        points=file.points + sum(len(each.values) for each in points),
    )  # fmt: skip
