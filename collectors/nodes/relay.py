"""A probe as a step of a job: the relay to it, and what tells the steps apart.

srun writes `3: ` before each piece of a task's output. A line of more than 1024 bytes becomes several pieces, each on a
line of its own (seen with Slurm 22.05). Pieces of JSON are joined again: no beginning of a JSON object is a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

import msgspec

from collectors.probe.host import STEP
from trainmon.lib import by_key

# ---- cuts the labelled output of `srun --label` into the lines of each task ------------------------------------------

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


# ---- what is sent to the tasks of a step -----------------------------------------------------------------------------

NODE = b"#node "
"""The start of the first line of a task. The name of its node follows."""

BY_SIGTERM = 128 + 15
"""What the relay reports when it, or its command, gets SIGTERM: the job ends, or the step was cancelled."""

END = "-"
"""Before the name of a node: its command gets no more input."""

ALL = "*"

SCRIPT = (
    f"export {STEP}=1; "
    'trap "" USR1 USR2 HUP INT QUIT; trap "echo \\"#ended 143\\"; exit 0" TERM; n=$SLURMD_NODENAME; echo "#node $n"; '
    "{ LC_ALL=C; while IFS= read -r line; do to=${line%% *}; case ,$to, in "
    '",-$n,") break;; ",*,"|*",$n,"*) printf "%s\\n" "${line#* }";; esac; done; } '
    '| { trap - TERM; "$@"; echo "#ended $?"; }; [ $? = 0 ] || echo "#ended 143"; exit 0'
)
"""A POSIX shell that stays the parent of the command. It always exits with 0, because Slurm stores the highest exit
status of all steps as the job's derived one. The command inherits that these signals are ignored."""


def command(argv: Sequence[str]) -> list[str]:
    """The argv of the tasks: the relay with the command behind it. It holds no newline, single quote or `!`."""
    return ["sh", "-c", SCRIPT, "trainmon-relay", *argv]


def addressed(lines: Mapping[str, Sequence[bytes]], nodes: int) -> bytes:
    """The input of srun for some lines of each node, in their order. A line that is the same for several nodes is sent
    once: the code of the probe is the longest of all."""
    sent = []
    for row in zip_longest(*lines.values()):
        by_line = by_key((line, node) for node, line in zip(lines, row, strict=True) if line is not None)
        for line, named in by_line.items():
            address = ALL if len(named) == nodes else ",".join(named)
            sent.append(address.encode() + b" " + line + b"\n")
    return b"".join(sent)


def end_of(node: str) -> bytes:
    """The input of srun that ends the command on one node."""
    return f"{END}{node}\n".encode()
