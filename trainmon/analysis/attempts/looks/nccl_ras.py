"""The answers of NCCL's RAS service, as JSON (from 2.28.7 on) and as text, as one kind of values. Pure.

Written from its documentation and its sources from 2.24 to 2.30. Hosts are addresses; a rank is that in a communicator,
not that of the training. Counts are what the host has launched, not what the GPU has completed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainmon.lib import clean

RESULTS = {
    1: "unhandled CUDA error", 2: "unhandled system error", 3: "internal error", 4: "invalid argument",
    5: "invalid usage", 6: "remote process error", 8: "timeout",
}  # fmt: skip
"""ncclResult_t, but for success (0) and in progress (7)."""


class UnreadableError(ValueError):
    """An answer is cut off, or is none; says why."""


class Process(NamedTuple):
    """A rank of a communicator: its process, and the GPU as NVML numbers it."""

    host: str
    pid: int
    gpu: str = ""


class Side(NamedTuple):
    """The ranks of a communicator that have launched equally many operations. The text form leaves out who they are
    if they are many."""

    ranks: int
    processes: frozenset[Process] = frozenset()

    @property
    def is_listed(self) -> bool:
        return len(self.processes) == self.ranks


class Communicator(NamedTuple):
    """One communicator."""

    size: int
    sides: Mapping[str, Mapping[int, Side]]
    """By operation, and by how many of them were launched. The text form has only operations of which ranks have
    launched different numbers."""
    silent: Mapping[Process, bool] = {}
    """Who has not answered the other processes, and whether they count as dead: unreachable for a minute."""
    errors: tuple[tuple[str, Process], ...] = ()
    """What ranks have reported."""
    notes: tuple[str, ...] = ()
    """What else differs, in words."""
    is_going: bool = True
    """Whether all its ranks use it: none initialises, finalises or has aborted it."""


class Answer(NamedTuple):
    """One answer of a job."""

    version: str
    communicators: Mapping[str, Communicator]
    """By both hashes; the text form has only the first one."""
    processes: int | None
    """How many the job has, as far as that is known."""
    is_complete: bool
    """Whether it shows all counts, as the JSON form does."""

    @property
    def pids(self) -> dict[str, set[int]]:
        """By host: all processes that it names."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for one in self.communicators.values():
            for process in (*one.silent, *(process for _, process in one.errors), *members(one)):
                found[process.host].add(process.pid)
        return dict(found)


def members(one: Communicator) -> Iterator[Process]:
    """The processes whose counts are known."""
    return (process for sides in one.sides.values() for side in sides.values() for process in side.processes)


def read(text: str) -> Answer:
    """Read one answer.

    Raises:
        UnreadableError: when it is cut off, or is none of a version that is known.
    """
    try:
        return _json(text) if text.lstrip().startswith("{") else _text(text)
    except UnreadableError as error:
        raise UnreadableError(f"its answer cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"its answer cannot be read: {clean(str(error), 80)}") from error


# ---- JSON ------------------------------------------------------------------------------------------------------------

NO_COMMA = re.compile(r'("nvml_dev": *-?\d+)(?=\s*")')
"""What 2.28.7 to 2.28.9 write of a missing rank, before its status."""


def _json(text: str) -> Answer:
    try:
        found = json.loads(NO_COMMA.sub(r"\1,", text))
    except ValueError as error:
        cut = "" if text.rstrip().endswith("}") else "it is cut off; "
        raise UnreadableError(f"{cut}{error}") from error
    communicators = {
        f"{one['hash']} {one.get('secondary_hash', '')}": _communicator(one) for one in found["communicators"]
    }
    processes = {(host, pid) for one in found["communicators"] for host, pid in map(_process_of, _all_ranks(one))}
    return Answer(str(found["nccl_version"]), communicators, len(processes), is_complete=True)


def _all_ranks(one: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*one["ranks"], *one.get("missing_ranks", ())]


def _process_of(rank: Mapping[str, Any]) -> tuple[str, int]:
    return str(rank["host"]), int(rank["pid"])


def _process(rank: Mapping[str, Any]) -> Process:
    return Process(*_process_of(rank), str(rank["nvml_dev"]))


def _communicator(one: Mapping[str, Any]) -> Communicator:
    sides: defaultdict[str, defaultdict[int, set[Process]]] = defaultdict(lambda: defaultdict(set))
    states, errors = Counter[str](), list[tuple[str, Process]]()
    for rank in one["ranks"]:
        process, status = _process(rank), rank["status"]
        states[_state(status)] += 1
        codes = {status["init_state"], status["async_error"]}
        errors += [(RESULTS.get(code, f"error {code}"), process) for code in codes - {0, 7}]
        for operation, count in rank["collective_counts"].items():
            sides[operation][int(count)].add(process)
    silent, missing = {}, one.get("missing_ranks", ())
    for rank in missing:
        if rank["status"]["unresponsive"] or rank["status"]["considered_dead"]:
            silent[_process(rank)] = bool(rank["status"]["considered_dead"])
        else:
            states["NOCOMM"] += 1
    return Communicator(
        int(one["size"]),
        {
            operation: {count: Side(len(found), frozenset(found)) for count, found in counts.items()}
            for operation, counts in sides.items()
            if counts.keys() != {0}
        },
        silent,
        tuple(errors),
        tuple(f"{count} of its ranks: {state}" for state, count in states.items() if len(states) > 1),
        states.keys() <= {"RUNNING"},
    )


def _state(status: Mapping[str, Any]) -> str:
    """As the text form has it."""
    if status["abort_flag"]:
        return "ABORT"
    if status["finalize_called"] or status["destroy_flag"]:
        return "FINALIZE"
    return "INIT" if status["init_state"] else "RUNNING"


# ---- text ------------------------------------------------------------------------------------------------------------

VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
TOTAL = re.compile(r"^\(total\).*\n +\d+ .*?(\d+) +\d+$", re.MULTILINE)
"""The last but one number: how many processes there are in all."""

GROUP = re.compile(r"^ *(\d+) +(\d+) +\d+ +[\d-]+ +(\d+) +\d+ +([A-Z]+)  +([A-Z,]+)$", re.MULTILINE)
"""The number of a group of equal communicators, how many there are, the size of each, their status, and what is odd."""

BLOCK = re.compile(r"^#(\d+)-\d+ \((?P<hash>[0-9a-f]+)\) (?P<kind>[A-Z]+)$")
DIFFER = re.compile(r"  Communicator ranks have different (\w+) operation counts")
SIDE = re.compile(r"  (\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)")
RANK = re.compile(
    r"  Rank \d+ (?:has (?:launched up to operation (?P<count>\d+)|(?P<none>not launched) any operations"
    r"|status (?P<status>[A-Z]+)) |reported (?P<error>.+?) )?--"
    r"(?: GPU (?P<gpu>.+) managed by process (?P<pid>\d+) on node (?P<host>\S+))?"
)
ERROR = re.compile(r"  \d+ ranks reported (.+)")
ABSENT = re.compile(r"  (?:Missing communicator data from )?(\d+) ranks?(?: have status NOCOMM)?$")
PROCESS = re.compile(r"  Process (?P<pid>\d+) on node (?P<host>\S+) managing GPUs? (?P<gpu>.+)")


class _Block:
    """A communicator while its lines are read."""

    def __init__(self, size: int, status: str) -> None:
        self.size, self.states = size, [status]
        self.sides: dict[str, dict[int, Side]] = {}
        self.silent: dict[Process, bool] = {}
        self.errors: list[tuple[str, Process]] = []
        self.operation, self.count, self.error, self.kind, self.absent = "", 0, "", "", 0

    def add(self, line: str) -> None:
        """Read one of its lines."""
        if found := DIFFER.match(line):
            self.operation = found[1]
            self.sides[self.operation] = {}
        elif found := SIDE.match(line):
            self.count = int(found[2] or 0)
            self.sides[self.operation][self.count] = Side(int(found[1]))
        elif found := ERROR.match(line):
            self.error = found[1]
        elif found := RANK.match(line):
            self._rank(found)
        elif found := ABSENT.match(line):
            self.absent += int(found[1])
        elif " have status " in line:
            self.states.append(line.rpartition(" ")[2])

    def _rank(self, found: re.Match[str]) -> None:
        process = None if found["host"] is None else Process(found["host"], int(found["pid"]), gpu_of(found["gpu"]))
        who = frozenset() if process is None else frozenset({process})
        if found["status"]:
            self.absent += found["status"] == "NOCOMM"
            self.states.append(found["status"])
        elif found["count"] or found["none"]:
            self.sides[self.operation][int(found["count"] or 0)] = Side(1, who)
        elif self.kind == "MISMATCH" and self.operation:
            side = self.sides[self.operation][self.count]
            self.sides[self.operation][self.count] = Side(side.ranks, side.processes | who)
        elif process is not None and self.kind == "INCOMPLETE":
            self.silent[process] = False
        elif process is not None and self.kind == "ERROR":
            self.errors.append((found["error"] or self.error, process))

    def whole(self, dead: frozenset[tuple[str, int]]) -> Communicator:
        """The communicator, once all its lines are read. What is cut off between two lines shows in the sums."""
        for sides in self.sides.values():
            is_cut = any(one.processes and not one.is_listed for one in sides.values())
            if is_cut or sum(side.ranks for side in sides.values()) != self.size - self.absent:
                raise UnreadableError("it is cut off")
        silent = {one: (one.host, one.pid) in dead for one in self.silent}
        notes = () if {*self.states} == {"RUNNING"} else (f"its ranks: {', '.join(dict.fromkeys(self.states))}",)
        return Communicator(self.size, self.sides, silent, tuple(self.errors), notes, not notes)


def gpu_of(text: str) -> str:
    """The number of NVML: `3 (NVML 7)` is 7."""
    return text.rpartition("NVML ")[2].rstrip(")")


def _text(text: str) -> Answer:
    version = VERSION.search(text)
    if version is None or "\nCommunicators..." not in text:
        raise UnreadableError("it is not one of NCCL's RAS service" if version is None else "it is cut off")
    if "\nWarnings\n========\n" not in text or not text.endswith("\n"):
        raise UnreadableError("it is cut off")
    groups = {found[1]: found for found in GROUP.finditer(text)}
    blocks, dead, section = dict[str, _Block](), set[tuple[str, int]](), ""
    for line in text.splitlines():
        if found := BLOCK.match(line):
            group = groups[found[1]]
            section = line[: line.rindex(" ")]
            block = blocks.setdefault(section, _Block(int(group[3]), group[4]))
            block.kind, block.operation = found["kind"], ""
        elif not line.startswith("  "):
            section = line or section
        elif section in blocks:
            blocks[section].add(line)
        elif section == "DEAD" and (gone := PROCESS.match(line)):
            dead.add((gone["host"], int(gone["pid"])))
    communicators, total = dict[str, Communicator](), TOTAL.search(text)
    if len(blocks) < sum(int(found[2]) for found in groups.values() if found[5] != "OK"):
        raise UnreadableError("it is cut off")
    for name, block in blocks.items():
        key = name[name.index("(") + 1 : -1]
        while key in communicators:
            key += "'"
        communicators[key] = block.whole(frozenset(dead))
    for number, found in groups.items():  # those of which nothing is odd have no hash here
        odd = sum(name.startswith(f"#{number}-") for name in blocks)
        for index in range(odd, int(found[2])):
            communicators[f"{number}-{index}"] = _Block(int(found[3]), found[4]).whole(frozenset())
    return Answer(version[1], communicators, None if total is None else int(total[1]), is_complete=False)
