"""What is read in each line of a log, for somebody who wants to know why, and a template that reads it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.log_formats.line import Format, StepLine
from trainmon.analysis.log_formats.progress import advance
from trainmon.analysis.log_formats.read import LEARNED, plain, read_line
from trainmon.analysis.log_formats.template import template
from trainmon.model import LogShape, Progress

EXAMPLE = "iter {step}: loss {loss}, time {step_time_ms}ms"
"""A template to start from."""


class ReadLine(NamedTuple):
    """One line, and what was read in it."""

    text: str
    format: str | None
    found: StepLine | None


class LogReport(NamedTuple):
    """What was read in the lines of a log."""

    lines: tuple[ReadLine, ...]
    progress: Progress
    shape: LogShape

    @property
    def steps(self) -> int:
        """The number of lines with a step."""
        return sum(one.found is not None and one.found.step is not None for one in self.lines)

    @property
    def _last(self) -> ReadLine | None:
        return next((one for one in reversed(self.lines) if one.found is not None and one.found.step is not None), None)

    @property
    def spans_lines(self) -> bool:
        """Whether several lines make one step, as in Keras: `Epoch 2/5`, then `100/1875`. A template reads one line."""
        last = self._last
        if last is None or last.format != LEARNED or self.shape.position is None:
            return False
        return "{step}" in (template(last.text) or "")

    @property
    def template(self) -> str | None:
        """The template of its step lines; None where there is none, or where several lines make one step."""
        return None if self._last is None or self.spans_lines else template(self._last.text)


def report(
    lines: Iterable[str],
    own: Sequence[Format] = (),
    *,
    partial: str | None = None,
    progress: Progress | None = None,
    shape: LogShape | None = None,
) -> LogReport:
    """Read the lines of a log as the dashboard does, with the formats of the config (`own`) first.

    `partial` is the unfinished last line, with its states as a probe sends them: only the last one may be torn. With
    the progress and the shape of a run, its log is read on.
    """
    progress, read = progress or Progress(), list[ReadLine]()
    shape = replace(shape or LogShape(), block="", text="", block_lines=0, candidates=())
    *whole, torn = (*lines, *(partial or "").split("\r"))
    for number, line in enumerate((*whole, *filter(None, [torn])), 1):
        is_finished = number <= len(whole)
        found, shape = read_line(line, progress, shape, float(number), own, is_finished=is_finished)
        progress = progress if found is None else advance(progress, *found, float(number))
        read.append(ReadLine(plain(line), *(found or (None, None))))
    return LogReport(tuple(read), progress, shape)


def summary(progress: Progress, shape: LogShape, lines: int) -> str:
    """In one line, which format a log has: `learned: "iter {step}: loss {loss}"`, or the name of a built-in one."""
    if progress.format is None or (progress.step is None and progress.epoch is None):
        return f"not recognized: {lines:,} {'line' if lines == 1 else 'lines'}, no step"
    if progress.format != LEARNED:
        return progress.format
    return f'{LEARNED}: "{template(shape.example) or shape.example}"'


def config_block(name: str, template: str) -> str:
    """A `[[log_format]]` of the config with this template."""
    values = {"name": name, "template": template}
    rows = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
    return "[[log_format]]\n" + "".join(rows)
