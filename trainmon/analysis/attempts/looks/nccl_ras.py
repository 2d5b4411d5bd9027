"""The answers of NCCL's RAS service as JSON, which it has from 2.28.7 on. Pure.

Written from its documentation and its sources up to 2.30. Hosts are addresses; a rank is that in a communicator,
not that of the training. Counts are what the host has launched, not what the GPU has completed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainmon.lib import clean

RESULTS = {
    1: "unhandled CUDA error", 2: "unhandled system error", 3: "internal error", 4: "invalid argument",
    5: "invalid usage", 6: "remote process error", 8: "timeout",
}  # fmt: skip
"""ncclResult_t, but for success (0) and in progress (7)."""

SHOWN = 80
"""Characters of a name in an answer, which is untrusted text."""


class UnreadableError(ValueError):
    """An answer is cut off, or is none; says why."""


class Process(NamedTuple):
    """A rank of a communicator: its process, and the GPU as NVML numbers it."""

    host: str
    pid: int
    gpu: str = ""


class Communicator(NamedTuple):
    """One communicator."""

    size: int
    sides: Mapping[str, Mapping[int, frozenset[Process]]]
    """Its processes by operation, and by how many of them they have launched."""
    silent: Mapping[Process, bool] = {}
    """Who has not answered the other processes, and whether they count as dead: unreachable for a minute."""
    errors: tuple[tuple[str, Process], ...] = ()
    """What ranks have reported."""
    is_going: bool = True
    """Whether all its ranks use it: none initialises, finalises or has aborted it."""


class Answer(NamedTuple):
    """One answer of a job."""

    version: str
    communicators: Mapping[str, Communicator]
    """By both hashes."""
    processes: frozenset[tuple[str, int]]
    """The host and the pid of each process of the job."""


def read(text: str) -> Answer:
    """Read one answer.

    Raises:
        UnreadableError: when it is cut off, or is none of a version that is known.
    """
    try:
        return _answer(json.loads(NO_COMMA.sub(r"\1,", text)))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        cut = "" if text.rstrip().endswith("}") else "it is cut off; "
        raise UnreadableError(f"its answer cannot be read: {cut}{clean(str(error), 120)}") from error


NO_COMMA = re.compile(r'("nvml_dev": *-?\d+)(?=\s*")')
"""What 2.28.7 to 2.28.9 write of a missing rank, before its status."""


UNUSED = ("init_state", "finalize_called", "destroy_flag", "abort_flag")
"""Set while a rank initialises a communicator, ends it, or has aborted it."""


def _answer(found: Any) -> Answer:
    communicators = {
        f"{one['hash']} {one.get('secondary_hash', '')}": _communicator(one) for one in found["communicators"]
    }
    ranks = (rank for one in found["communicators"] for rank in (*one["ranks"], *one.get("missing_ranks", ())))
    return Answer(clean(found["nccl_version"], SHOWN), communicators, frozenset(_process(rank)[:2] for rank in ranks))


def _process(rank: Mapping[str, Any]) -> Process:
    return Process(clean(rank["host"], SHOWN), int(rank["pid"]), str(int(rank["nvml_dev"])))


def _communicator(one: Mapping[str, Any]) -> Communicator:
    sides: defaultdict[str, defaultdict[int, set[Process]]] = defaultdict(lambda: defaultdict(set))
    is_going, errors = True, list[tuple[str, Process]]()
    for rank in one["ranks"]:
        process, status = _process(rank), rank["status"]
        is_going = is_going and not any(status[name] for name in UNUSED)
        codes = {status["init_state"], status["async_error"]}
        errors += [(RESULTS.get(code, f"error {int(code)}"), process) for code in codes - {0, 7}]
        for operation, count in rank["collective_counts"].items():
            sides[clean(operation, SHOWN)][int(count)].add(process)
    silent, missing = {}, one.get("missing_ranks", ())
    for rank in missing:
        if rank["status"]["unresponsive"] or rank["status"]["considered_dead"]:
            silent[_process(rank)] = bool(rank["status"]["considered_dead"])
        else:
            is_going = False
    return Communicator(
        int(one["size"]),
        {
            operation: {count: frozenset(found) for count, found in counts.items()}
            for operation, counts in sides.items()
            if counts.keys() != {0}
        },
        silent,
        tuple(errors),
        is_going,
    )
