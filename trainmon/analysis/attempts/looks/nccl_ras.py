"""The answers of NCCL's RAS service, as JSON (from 2.28.7 on) and as text, as one kind of values. Pure.

Written from its documentation and its sources from 2.24 to 2.30. Hosts are addresses; a rank is that in a communicator,
not that of the training. Counts are what the host has launched, not what the GPU has completed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    processes: int
    """How many the job has; 0 in the text form."""
    is_complete: bool
    """Whether it shows all counts, as the JSON form does."""

    @property
    def pids(self) -> dict[str, set[int]]:
        """By host: all processes that it names."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for one in self.communicators.values():
            counted = (side.processes for sides in one.sides.values() for side in sides.values())
            for process in set(one.silent).union((process for _, process in one.errors), *counted):
                found[process.host].add(process.pid)
        return dict(found)


def read(text: str) -> Answer:
    """Read one answer.

    Raises:
        UnreadableError: when it is cut off, or is none of a version that is known.
    """
    try:
        return _json(text) if text.lstrip().startswith("{") else _text(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"its answer cannot be read: {clean(str(error), 120)}") from error


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
    processes = {
        (rank["host"], rank["pid"])
        for one in found["communicators"]
        for rank in (*one["ranks"], *one.get("missing_ranks", ()))
    }
    return Answer(clean(found["nccl_version"], SHOWN), communicators, len(processes), is_complete=True)


def _process(rank: Mapping[str, Any]) -> Process:
    return Process(clean(rank["host"], SHOWN), int(rank["pid"]), str(int(rank["nvml_dev"])))


def _communicator(one: Mapping[str, Any]) -> Communicator:
    sides: defaultdict[str, defaultdict[int, set[Process]]] = defaultdict(lambda: defaultdict(set))
    states, errors = Counter[str](), list[tuple[str, Process]]()
    for rank in one["ranks"]:
        process, status = _process(rank), rank["status"]
        states[_state(status)] += 1
        codes = {status["init_state"], status["async_error"]}
        errors += [(RESULTS.get(code, f"error {int(code)}"), process) for code in codes - {0, 7}]
        for operation, count in rank["collective_counts"].items():
            sides[clean(operation, SHOWN)][int(count)].add(process)
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
    is_ending = status["finalize_called"] or status["destroy_flag"]
    running = "FINALIZE" if is_ending else "INIT" if status["init_state"] else "RUNNING"
    return "ABORT" if status["abort_flag"] else running


# ---- text ------------------------------------------------------------------------------------------------------------

VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
GROUP = re.compile(r"^ *(\d+) +(\d+) +\d+ +[\d-]+ +(\d+) +\d+ +([A-Z]+)  +([A-Z,]+)$", re.MULTILINE)
"""The number of a group of equal communicators, how many there are, the size of each, their status, and what is odd."""

BLOCK = re.compile(r"^#(\d+)-(\d+) \(([0-9a-f]+)\) ([A-Z]+)$|^([A-Z][\w ]*)$", re.MULTILINE)
"""Begins what is said of a communicator, of the dead processes, or of something else."""
DIFFER = re.compile(r"^  Communicator ranks have different (?:(\w+) operation counts|status)$", re.MULTILINE)
WHO = r"|GPU (.+) managed by process (\d+) on node (\S+)$"
PROCESS = re.compile(WHO[1:], re.MULTILINE)
COUNT = re.compile(r"^  (?:(\d+) ranks|Rank \d+) ha(?:ve|s) (?:launched up to operation (\d+)|not launched)" + WHO,
                   re.MULTILINE)  # fmt: skip
STATUS = re.compile(r"^  (?:(\d+) ranks|Rank \d+) ha(?:ve|s) status ([A-Z]+)", re.MULTILINE)
MISSING = re.compile(r"^  Missing communicator data from (\d+) ranks?$", re.MULTILINE)
REPORTED = re.compile(r"^  (?:\d+ ranks|Rank \d+) reported (.+?)(?: --|$)" + WHO, re.MULTILINE)
DEAD = re.compile(r"^  Process (\d+) on node (\S+) managing", re.MULTILINE)


def _text(text: str) -> Answer:
    version = VERSION.search(text)
    if version is None or "\nCommunicators..." not in text:
        raise UnreadableError("it is not one of NCCL's RAS service" if version is None else "it is cut off")
    if "\nWarnings\n========\n" not in text or not text.endswith("\n"):
        raise UnreadableError("it is cut off")
    groups = {found[1]: found for found in GROUP.finditer(text)}
    dead = {(host, int(pid)) for pid, host in DEAD.findall(text)}
    blocks: dict[tuple[str, str, str], dict[str, str]] = {}
    for group, index, hash_, kind, _, said in zip(*(iter(BLOCK.split(text)[1:]),) * 6, strict=True):
        if kind:
            blocks.setdefault((hash_, group, index), {})[kind] = said
    odd = Counter(group for _, group, _ in blocks)
    if any(odd[number] < int(found[2]) for number, found in groups.items() if found[5] != "OK"):
        raise UnreadableError("it is cut off")
    communicators: dict[str, Communicator] = {}
    for (hash_, group, _), said in blocks.items():
        same = sum(key.startswith(hash_) for key in communicators)
        communicators[f"{hash_} {same}"] = _of_text(groups[group], said, dead)
    for number, found in groups.items():  # those of which nothing is odd have no hash here
        communicators |= {f"{number}-{index}": _of_text(found, {}, dead) for index in range(odd[number], int(found[2]))}
    return Answer(version[1], communicators, 0, is_complete=False)


def _of_text(group: re.Match[str], said: Mapping[str, str], dead: Collection[tuple[str, int]]) -> Communicator:
    """A communicator of a group, by what is said of it. What is cut off between two lines shows in the sums."""
    mismatch, incomplete = said.get("MISMATCH", ""), said.get("INCOMPLETE", "")
    status, parts = STATUS.findall(mismatch), DIFFER.split(mismatch)[1:]
    absent = sum(int(ranks or 1) for ranks, state in status if state == "NOCOMM")
    absent += sum(map(int, MISSING.findall(incomplete)))
    sides = {operation: _sides(rows) for operation, rows in zip(parts[::2], parts[1::2], strict=True) if operation}
    for each in sides.values():
        is_cut = any(one.processes and not one.is_listed for one in each.values())
        if is_cut or sum(side.ranks for side in each.values()) != int(group[3]) - absent:
            raise UnreadableError("it is cut off")
    silent = {one: one[:2] in dead for one in map(_named, PROCESS.findall(incomplete))}
    states = dict.fromkeys([group[4], *(state for _, state in status)])
    notes = () if [*states] == ["RUNNING"] else (f"its ranks: {', '.join(states)}",)
    return Communicator(int(group[3]), sides, silent, tuple(_errors(said.get("ERROR", ""))), notes, not notes)


def _sides(rows: str) -> dict[int, Side]:
    """How many ranks have launched how much, with those whose names follow."""
    sides, count = dict[int, Side](), 0
    for ranks, launched, *who in COUNT.findall(rows):
        if who[2]:
            sides[count] = Side(sides[count].ranks, sides[count].processes | {_named(who)})
        else:
            count = int(launched or 0)
            sides[count] = Side(int(ranks or 1))
    return sides


def _errors(rows: str) -> Iterator[tuple[str, Process]]:
    what = ""
    for reported, *who in REPORTED.findall(rows):
        if who[2]:
            yield what, _named(who)
        else:
            what = clean(reported[:1].lower() + reported[1:], SHOWN)


def _named(who: Sequence[str]) -> Process:
    """The GPU by its number of NVML: `3 (NVML 7)` is 7."""
    gpu, pid, host = who
    return Process(clean(host, SHOWN), int(pid), re.sub(r"\D", "", gpu.rpartition("NVML ")[2]))
