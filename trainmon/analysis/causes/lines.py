"""The lines of a log without colours, progress rewrites and rank prefixes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trainmon.lib import without_sequences
from trainmon.lib.log_prefix import SHAPE, prefix_of, without_prefix
from trainmon.model import LogExcerpt

LONGEST = 2_000
"""Characters at each end of a line that are examined: messages stand at an end, also behind a progress bar."""

FEW = 8
"""Ranks. More than these, and than half of the lines, are the numbers of lines."""

RAISED = re.compile(r"[\w.]*(?:Error|Exception|Warning|Interrupt)\b")
"""An exception, whose module looks like the name of a logger."""


class Line(NamedTuple):
    """One line as its process wrote it."""

    number: int
    rank: str | None
    text: str
    head: str
    """What launchers and loggers put in front: the level of the line may stand here."""
    shape: str
    """The whole line with all digits 0: lines that differ only in their digits are read once."""
    file: str | None = None

    @property
    def stream(self) -> tuple[str | None, str | None]:
        """Whose lines belong together: those of one rank in one file."""
        return self.file, self.rank


def read_lines(excerpts: Iterable[LogExcerpt]) -> Sequence[Line]:
    """The lines in order. A line that carriage returns rewrite becomes several lines with the same number."""
    lines = [*_each(excerpts)]
    is_numbered = len({line.rank for line in lines}) > max(FEW, len(lines) // 2)  # each line has a writer of its own
    return [line._replace(rank=None) for line in lines] if is_numbered else lines


def _each(excerpts: Iterable[LogExcerpt]) -> Iterator[Line]:
    for excerpt in excerpts:
        pairs = zip(excerpt.text.split("\n"), excerpt.text.translate(SHAPE).split("\n"), strict=True)
        for number, (raw, shape) in enumerate(pairs, excerpt.first_line):
            for state in zip(raw.split("\r"), shape.split("\r"), strict=True) if "\r" in raw else ((raw, shape),):
                line = _line(number, *state, excerpt.file)
                if line.text:
                    yield line


def _line(number: int, text: str, shape: str, file: str | None) -> Line:
    if len(text) > 2 * LONGEST:
        text, shape = (f"{whole[:LONGEST]} … {whole[-LONGEST:]}" for whole in (text, shape))
    if "\x1b" in text or "\x9b" in text:
        text = without_sequences(text)
        shape = text.translate(SHAPE)
    text, shape = text.rstrip(), shape.rstrip()
    prefix = prefix_of(text)
    rank = None if prefix.writer is None else text[prefix.writer]
    return Line(number, rank, without_prefix(text), text[: prefix.end], shape, file)
