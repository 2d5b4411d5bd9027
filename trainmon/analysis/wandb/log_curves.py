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

FIELDS = {
    **{name: name for name in ("loss", "grad_norm", "learning_rate", "tokens_per_s", "samples_per_s", "loss_scale")},
    PART_OF_LOSS: "loss",
    "step_time_s": "step_time_s",
}
"""What may be printed of a step, and the name of its curve."""

NAMES_AT_MOST = 16
"""Curves of one run: those of FIELDS, and what else its lines name."""

NAMED = re.compile(
    r"(?<![\w./-])([A-Za-z_][\w./-]{0,60}(?: [\w./()-]{1,40}){0,4})['\"]?\s{0,3}[:=]\s{0,12}['\"]?"
    r"([-+]?(?:\d[\d,]{0,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf)[KMBT]?)(?![\w:/.])"
)
ASIDE = frozenset(
    ("consumed", "eta", "rank", "dp", "tp", "pp", "cp", "ep", "memory", "mem", "max", "allocated", "reserved", "batch",
     "number")
)  # fmt: skip
"""Words of numbers that say nothing of the model, and of launchers."""


class Row(NamedTuple):
    """The numbers of one step."""

    start: str
    """The start of the trainer before it: the number of its line in the log. Empty: as before."""
    step: float
    at: Instant
    values: Mapping[str, float]


@lru_cache(4096)
def _is_own(name: str) -> bool:
    """Whether a name is neither of a counter nor of what FIELDS have."""
    words = names.words(name)
    known = (names.counter(words), names.metric(words), names.speed(words, ""))
    is_count = names.is_epoch(words) or names.is_target(words)
    is_loss = (names.loss(words) or 0) < names.NAMED_LOSS and "loss" in words
    return bool(words) and known == (None,) * 3 and not (is_count or is_loss) and ASIDE.isdisjoint(words)


def values_of(before: Progress, after: Progress, text: str) -> dict[str, float]:
    """What a line has added to what is known of its step: from `before` to `after`."""
    known = (*after.borrowed, *(before.printed if before.step == after.step else ()))
    found = {curve: getattr(after, curve) for name, curve in FIELDS.items() if name in after.printed
             and name not in known}  # fmt: skip
    if after.step is None or found.keys() <= {"step_time_s"}:
        return {}
    for name, written in NAMED.findall(plain(text)[:LONGEST]):
        value = number(written)
        if value is not None and _is_own(name) and value not in (*found.values(), after.step, after.target_step):
            found.setdefault(name, value)
    return found


def row(spans: Sequence[StepSpan], progress: Progress, at: Instant, values: Mapping[str, float]) -> Row:
    """The row of a line after which these are the spans of the log."""
    start = str(spans[-1].first_line) if spans and spans[-1].is_start else ""
    return Row(start, float(progress.step or 0), at, values)


def grown(run: Run, rows: Sequence[Row], host: str, at: Instant) -> tuple[WandbFile, list[CurvesGrew]]:
    """What is known of the curves of its log after these rows, and their points."""
    file, grew = run.log_metrics or WandbFile(), list[CurvesGrew]()
    for start, group in groupby(rows, lambda row: row.start):
        part = tuple(group)
        one = file.runs[0] if file.runs and start in ("", file.runs[0].id) else WandbRun(
            entity=ENTITY, project=run.name, id=start or "0", name=f"from step {part[0].step:,.0f}", state="",
            created_at=part[0].at, host=host,
        )  # fmt: skip
        latest = {name: value for row in part for name, value in row.values.items()}
        known = tuple(dict.fromkeys((*file.names, *latest)))[:NAMES_AT_MOST]
        points = {name: _points([row for row in part if name in row.values], name) for name in known if name in latest}
        one = replace(one, step=int(part[-1].step), logged_at=part[-1].at, summary={**one.summary, **latest})
        grew.append(CurvesGrew(run.name, one.path, at, points))
        file = replace(
            file, host=host, checked_at=at, logged_at=part[-1].at, names=known,
            keys=metric_names.choose(run.spec.charts, known),
            points=file.points + sum(len(each.values) for each in points.values()),
            runs=(one, *(each for each in file.runs if each.id != one.id))[:FILES_AT_MOST],
        )  # fmt: skip
    return file, grew


def _points(rows: Sequence[Row], name: str) -> Points:
    return Points([row.step for row in rows], [row.at for row in rows], [row.values[name] for row in rows])
