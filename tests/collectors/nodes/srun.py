"""What srun does with the output of its tasks, and a srun whose other end is the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

PIECE = 1024
"""As seen with Slurm 22.05: a longer line is written in pieces, each with a label and a line feed."""


def labelled(task: int, line: bytes, sizes: Sequence[int] = (PIECE,)) -> bytes:
    """One line of a task as `srun --label` writes it."""
    pieces = list(cut(line, sizes)) if line.startswith(b"{") else [line]
    return b"".join(b"%d: %b\n" % (task, piece) for piece in pieces or [b""])


def cut(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """The bytes in pieces of these sizes, again and again."""
    for size in cycle(sizes):
        if not data:
            return
        yield data[:size]
        data = data[size:]


class Srun:
    """A running srun: what was written to it, and whether it was closed."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def finish(self) -> None:
        """Its input may be closed at any time."""

    def close(self) -> None:
        self.is_closed = True
