"""The lines of a log without colours, progress rewrites and rank prefixes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainmon.lib import without_sequences
from trainmon.lib.log_prefix import LEVEL, without_prefix
from trainmon.model import LogExcerpt

LONGEST = 2_000
"""Characters at each end of a line that are examined: messages stand at an end, also behind a progress bar."""

PREFIX = re.compile(
    r"\[(?:rank|default|gpu|local_rank)?[ :]?(?P<rank>\d{1,5})\]:? ?"  # torchrun, accelerate
    r"|\[(?P<mpi>\d{1,5},\d{1,5})\]<std(?:err|out)>: ?"  # mpirun --tag-output
    r"|\((?:[\w.:<>-]{1,60} )?pid=(?P<pid>\d+)(?:, ip=[\w.:]+)?\) ?"  # Ray
    r"|(?:rank[ _]?)?(?P<task>\d{1,5}): (?!\d)"  # srun --label
    rf"|(?!{LEVEL})(?P<host>[\w.-]{{1,60}}) +\| "  # docker compose, kubectl
    r"|(?P<node>(?![\w.]*(?:Error|Exception|Warning|Interrupt|error)\b)[\w.-]{2,40}): "
    r"(?=(?:Original )?Traceback \(| +File \"|[\w.]*Error\b"  # pdsh
    r"|During handling of|The above exception|Exception ignored|-- Process \d)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?:? (?=\S|  )"
    r"|(?:stderr|stdout)(?: F)?:? "
)
"""What launchers put before each line, with the rank. No branch repeats a group: linear time."""
PREFIXES = 3


ZEROS = str.maketrans("123456789", "0" * 9)
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


class Head(NamedTuple):
    """Where the prefixes of lines of one shape end, and where the rank stands in them."""

    end: int
    rank: slice | None


def read_lines(excerpts: Iterable[LogExcerpt]) -> Iterator[Line]:
    """The lines in order. A line that carriage returns rewrite becomes several lines with the same number."""
    heads: dict[str, Head] = {}
    for excerpt in excerpts:
        pairs = zip(excerpt.text.split("\n"), excerpt.text.translate(ZEROS).split("\n"), strict=True)
        for number, (raw, shape) in enumerate(pairs, excerpt.first_line):
            for state in zip(raw.split("\r"), shape.split("\r"), strict=True) if "\r" in raw else ((raw, shape),):
                line = _line(number, *state, heads, excerpt.file)
                if line.text:
                    yield line


def _line(number: int, text: str, shape: str, heads: dict[str, Head], file: str | None) -> Line:
    if len(text) > 2 * LONGEST:
        text, shape = (f"{whole[:LONGEST]} … {whole[-LONGEST:]}" for whole in (text, shape))
    if "\x1b" in text or "\x9b" in text:
        text = without_sequences(text)
        shape = text.translate(ZEROS)
    text, shape = text.rstrip(), shape.rstrip()
    head = heads.get(shape)
    if head is None:
        head = heads[shape] = _head(text)
    rank = None if head.rank is None else text[head.rank]
    return Line(number, rank, text[head.end :], text[: head.end], shape, file)


def _head(text: str) -> Head:
    end, rank = 0, None
    for _ in range(PREFIXES):
        found = PREFIX.match(text, end)
        if found is None or found.end() == len(text):
            break
        if found.lastgroup is not None:
            rank = slice(*found.span(found.lastgroup))
        end = found.end()
    end = len(text) - len(without_prefix(text[end:], RAISED) or text[end:])
    return Head(end, rank)
