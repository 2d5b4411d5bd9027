"""What one line of a training log may say, and what all formats share: numbers, and the prefixes to strip first."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from trainmon.lib.log_prefix import without_prefix
from trainmon.model import TrainingMetrics

Kind = Literal["train", "rest", "bar", "epoch", "eval", "save", "note"]
"""train: a step was taken. rest: further lines of a step, with all that they said of it, or its bar. bar: a nameless
progress bar, which may be training's. epoch: one begins, which counts where nothing counts steps. eval, save: what it
is busy with instead. note: it is back from that."""


class StepLine(TrainingMetrics, frozen=True, kw_only=True, gc=False):
    """The content of one log line."""

    kind: Kind = "train"
    is_part: bool = False
    """Whether its loss is one of several: another line of the same step may have their total."""
    evaluation: Literal["", "begins", "ends"] = ""
    """begins: an evaluation draws its bar below this one. ends: its results are printed, after its bar."""
    is_last: bool = False
    """Whether the trainer says in it that it has ended."""
    is_inner: bool = False
    """Whether its bar is drawn inside another one, as in each epoch."""


class Format(NamedTuple):
    """One log format."""

    name: str
    keep: str
    """A cheap expression, for Python 3.6 on the nodes, that finds any step line of it. It begins with a letter."""
    parse: Callable[[str], StepLine | None]
    """Reads a line that is free of escape sequences and carriage returns."""
    pattern: str = ""
    """Of a format of the config: its regular expression."""


def stripped(line: str) -> str:
    """Strip what launchers and loggers put in front, and the space around."""
    return without_prefix(line).strip()


SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "k": 1e3}


def number(text: str | None) -> float | None:
    """Read `1.5`, `1E-4`, `3,502`, `8.79K`, `nan`, `-inf`, `'0.94'`; None for anything else."""
    if text is None:
        return None
    bare = text.strip(" '\"")
    scale = SCALE.get(bare[-1:], 1.0)
    try:
        return float((bare[:-1] if scale != 1.0 else bare).replace(",", "")) * scale
    except ValueError:
        return None


def whole(text: str | None) -> int | None:
    """Read a count; None for what is no finite number."""
    value = number(text)
    return None if value is None or not math.isfinite(value) else int(value)


def positive(value: float | None) -> float | None:
    """A rate or duration; None when it is zero or no number."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def fields(text: str, between: str = "|", after: str = ":") -> dict[str, str]:
    """Split `name: value | name: value`; the first of two equal names wins (two ranks glued into one line)."""
    named: dict[str, str] = {}
    for part in text.split(between):
        name, found, value = part.partition(after)
        if found:
            named.setdefault(name.strip(), value.strip())
    return named


def headed(line: str, head: re.Pattern[str]) -> tuple[re.Match[str], dict[str, str]] | None:
    """What a line begins with, and the fields behind it; None if it begins otherwise."""
    body = stripped(line)
    found = head.match(body)
    return None if found is None else (found, fields(body[found.end() :]))


# ---- tqdm's progress bars, as HF Trainer and Lightning draw them -----------------------------------------------------

FASTEST = 1_000.0
"""Steps per second that no training reaches; tokenising and checkpoint-loading bars do."""

TIMES = (
    r"\[(?:\d{1,5}:)?\d\d:\d\d(?:<(?:[\d:]{1,12}|\?))?,\s{0,6}"
    r"(\d{1,12}(?:\.\d{1,6})?|\?)(it/s|s/it|step/s|s/step|steps/s)"
)
"""`[07:21<4:45:21,  3.84s/it`: what follows is `]`, or `, name=value …]`."""

POSTFIX = re.compile(r",\s{0,4}([^=,\]]{1,60})=([^,\]]{1,40})")


def step_time(rate: str, unit: str) -> float | None:
    """Seconds a step, from either way that tqdm gives a rate."""
    value = positive(number(rate))
    return value if value is None or unit.startswith("s/") else 1 / value


def postfix(text: str, at: int) -> dict[str, str]:
    """The metrics that a bar shows behind its rate, from position `at` on. Where another line cut it off, the last may
    be half a number and is left out."""
    end = text.find("]", at)
    shown = text[at : end + 1] if end >= 0 else text[at:].rpartition(",")[0]
    return {name.strip(): value for name, value in POSTFIX.findall(shown)}
