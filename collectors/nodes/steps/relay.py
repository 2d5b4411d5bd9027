"""What is sent to the tasks of a step. srun copies its standard input to every task, so each line is addressed: a relay
in each task passes on what is for its node. The relay survives the signals that a person sends to the job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from collectors.probe.gpu.pci import STEP

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
        by_line: dict[bytes, list[str]] = {}
        for node, line in zip(lines, row, strict=True):
            if line is not None:
                by_line.setdefault(line, []).append(node)
        for line, named in by_line.items():
            address = ALL if len(named) == nodes else ",".join(named)
            sent.append(address.encode() + b" " + line + b"\n")
    return b"".join(sent)


def end_of(node: str) -> bytes:
    """The input of srun that ends the command on one node."""
    return f"{END}{node}\n".encode()
