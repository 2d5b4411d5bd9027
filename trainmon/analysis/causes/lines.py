"""The lines of a log without colours, progress rewrites and rank prefixes, and the Python tracebacks in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from trainmon.lib import without_sequences
from trainmon.lib.log_prefix import SHAPE, prefix_of, without_prefix
from trainmon.model import LogExcerpt

# ---- the lines of a log without colours, progress rewrites and rank prefixes -----------------------------------------

LONGEST = 2_000
"""Characters at each end of a line that are examined: messages stand at an end, also behind a progress bar."""

FEW = 8
"""Ranks. More than these, and than half of the lines, are the numbers of lines."""


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


# ---- the Python tracebacks of a log, also where several ranks write at once ------------------------------------------

FRAME = re.compile(r'^[\s|+]*File "([^"]{1,1000})", line \d+(?:, in (.{1,200}))?')
NAMES = (
    "Error|Exception|Interrupt|Exit|Warning|Abort|Timeout|Failure|Refused|Reset|Full|Empty|Unavailable|Iteration|NotFound"
    "|Invalid|Expired|Errors|Missing|Exhausted"
)
RAISED = re.compile(
    rf"^[\s|]*((?:[A-Za-z_]\w*\.){{0,12}}(?:[A-Z]\w*(?:{NAMES})|Exception|[A-Z]\w{{3,}}|error|timeout))(?::\s?(.*)|\s*)$"
)
HEADER = "Traceback (most recent call last)"
CHAINED = re.compile(
    r"^[\s|]*(?:During handling of the above exception|The above exception was the direct cause|Original Traceback"
    r"|-- Process \d+ terminated with the following error)"
)
IGNORED = re.compile(r"Exception ignored (?:in|on|while)")
OUTERMOST = frozenset(
    {"<module>", "_run_module_as_main", "_run_code", "_bootstrap", "_bootstrap_inner", "_wrap", "run_path"}
)
PROGRAM = OUTERMOST - {"_bootstrap", "_bootstrap_inner", "_wrap"}
"""Where a program begins, not one of its threads or child processes."""
MODULE = re.compile(r"site-packages|dist-packages|/lib/python|^<frozen")
"""A path of a library."""
SOURCE = re.compile(r"│ *(?:❱ *)?\d+ │")
"""A line of code as Rich shows it."""
GAP = 30
"""Foreign lines within a traceback, of ranks that write into the same log."""


Stream = tuple[str | None, str | None]
"""A file and a rank."""


class Raised(msgspec.Struct):
    """One exception with its traceback."""

    stream: Stream
    start: int
    """The index of its first line."""
    is_ignored: bool = False
    """`Exception ignored in`: Python itself says that it ends nothing."""
    indent: int = 0
    """Of its header: torchrun indents the whole traceback of the rank that failed first."""
    is_chained: bool = False
    """It belongs to the exception before it."""
    end: int = -1
    """The index of the line with its type."""
    type: str = ""
    """Empty if the log ends before it."""
    message: str = ""
    frames: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Path and function, the outermost first."""
    place: int | None = None
    """The index of the last line that shows a frame of the program's own code."""

    @property
    def begins_program(self) -> bool:
        """Whether its traceback begins where a new program begins: not in a thread or a child process."""
        return not self.frames or self.frames[0][1] in PROGRAM

    @property
    def is_uncaught(self) -> bool:
        """Whether its traceback begins where a program begins. A logged exception begins where it was caught."""
        return not self.frames or self.stream[1] is not None or self.frames[0][1] in OUTERMOST


def tracebacks(lines: Sequence[Line]) -> tuple[list[Raised], set[int]]:
    """All tracebacks by their last line, and the indices of the lines that show code or frames."""
    done: list[Raised] = []
    code: set[int] = set()
    current: dict[Stream, Raised] = {}
    ignored: dict[Stream, int] = {}
    chained: dict[Stream, int] = {}
    for index, line in enumerate(lines):
        stream, text = line.stream, line.text
        if text[:1] == "│" and SOURCE.match(text):
            code.add(index)
        elif IGNORED.search(text):
            ignored[stream] = index
        elif CHAINED.match(text):
            chained[stream] = index
        if HEADER in text or (stream not in current and FRAME.match(text)):
            # A log may begin, or an interleaved rank go on, in the middle of a traceback.
            is_chained = index - chained.get(stream, -99) <= 3
            indent = len(text) - len(text.lstrip()) if HEADER in text else 0
            is_ignored = index - ignored.get(stream, -99) <= 3
            current[stream] = Raised(stream, index, is_ignored, indent, is_chained)
            if HEADER in text:
                code.add(index)  # what stands before it in the line is its own exception, or a progress bar
                continue
        raised = current.get(stream)
        if raised is None:
            continue
        if found := FRAME.match(text):
            raised.frames.append((found[1], found[2] or ""))
            if not MODULE.search(found[1]):
                raised.place = index
            code.add(index)
        elif text[raised.indent : raised.indent + 1].isspace() or (text.startswith("  |") and not RAISED.match(text)):
            code.add(index)
        elif found := RAISED.match(text):
            raised.end, raised.type, raised.message = index, found[1], found[2] or ""
            done.append(current.pop(stream))
        elif index - raised.start > GAP + 3 * len(raised.frames):
            del current[stream]
    for raised in current.values():
        if raised.frames:  # the log ends, or was cut, before its exception
            raised.end = max(raised.start, raised.place or 0)
            done.append(raised)
    return done, code
