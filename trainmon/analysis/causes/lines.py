"""The lines of a log without colours, progress rewrites and rank prefixes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainmon.lib import without_sequences
from trainmon.model import LogExcerpt

LONGEST = 2_000
"""Characters at each end of a line that are examined: messages stand at an end, also behind a progress bar."""

PREFIX = re.compile(
    r"\[(?:rank|default|gpu|local_rank)?[ :]?(?P<rank>\d{1,5})\]:? ?"  # torchrun, accelerate
    r"|\[(?P<mpi>\d{1,5},\d{1,5})\]<std(?:err|out)>: ?"  # mpirun --tag-output
    r"|\((?:[\w.:<>-]{1,60} )?pid=(?P<pid>\d+)(?:, ip=[\w.:]+)?\) ?"  # Ray
    r"|(?:rank[ _]?)?(?P<task>\d{1,5}): (?!\d)"  # srun --label
    r"|(?P<host>[\w.-]{1,60}) +\| "  # docker compose, kubectl
    r"|(?P<node>(?![\w.]*(?:Error|Exception|Warning|Interrupt|error)\b)[\w.-]{2,40}): "
    r"(?=Traceback \(| +File \"|[\w.]*Error\b)"  # pdsh
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?:? (?=\S|  )"
    r"|(?:stderr|stdout)(?: F)?:? "
)
"""What launchers put before each line. No branch repeats a group: linear time."""
PREFIXES = 3


class Line(NamedTuple):
    """One line as its process wrote it."""

    number: int
    rank: str | None
    text: str


def read_lines(excerpts: Iterable[LogExcerpt]) -> Iterator[Line]:
    """The lines in order. A line that carriage returns rewrite becomes several lines with the same number."""
    for excerpt in excerpts:
        for number, raw in enumerate(excerpt.text.split("\n"), excerpt.first_line):
            for state in raw.split("\r") if "\r" in raw else (raw,):
                line = _line(number, state)
                if line.text:
                    yield line


def _line(number: int, text: str) -> Line:
    if len(text) > 2 * LONGEST:
        text = f"{text[:LONGEST]} … {text[-LONGEST:]}"
    if "\x1b" in text or "\x9b" in text:
        text = without_sequences(text)
    rank, text = None, text.rstrip()
    for _ in range(PREFIXES):
        found = PREFIX.match(text)
        if found is None or found.end() == len(text):
            break
        rank = next(filter(None, found.groups()), rank)
        text = text[found.end() :]
    return Line(number, rank, text)
