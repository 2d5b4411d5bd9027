"""Cuts the labelled output of `srun --label` into the lines of each task. Pure.

srun writes `3: ` before each piece of a task's output. A line of more than 1024 bytes becomes several pieces, each on a
line of its own (seen with Slurm 22.05). Pieces of JSON are joined again: no beginning of a JSON object is a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

LABEL = re.compile(rb" *(\d+): ?")
ENDED = re.compile(rb"#ended (\d+)")
"""How the relay of a node reports the exit status of its command. It is never a part of a JSON line."""

LONGEST_LINE = 1 << 20
"""Bytes of one line, as in collectors.nodes.stream: more is passed on unjoined."""


class Labels:
    """The lines of each task, from the output of srun in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._open: dict[int, bytes] = {}
        """By task: the beginning of a JSON line."""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Each task with a line, without its line feed. Text without a label is left out: a login script printed it."""
        *pieces, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        for piece in pieces:
            label = LABEL.match(piece)
            if label is not None:
                yield from self._join(int(label[1]), piece[label.end() :])

    def _join(self, task: int, piece: bytes) -> Iterator[tuple[int, bytes]]:
        before = self._open.pop(task, b"")
        if ENDED.fullmatch(piece):
            before = b""  # the command ended in the middle of a line
        line = before + piece
        if line.startswith(b"{") and not is_whole(line) and len(line) < LONGEST_LINE:
            self._open[task] = line
        else:
            yield task, line


def is_whole(line: bytes) -> bool:
    """Whether this is a whole JSON value."""
    if not line.endswith(b"}"):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
