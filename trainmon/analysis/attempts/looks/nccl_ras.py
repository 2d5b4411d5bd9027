"""The answers of NCCL's RAS service as JSON, which it has from 2.28.7 on, and which ranks are late by them. Pure.

Written from its documentation and its sources up to 2.30. Hosts are addresses; a rank is that in a communicator,
not that of the training. Counts are what the host has launched, not what the GPU has completed.

The lower count is late, however few the others are. A difference counts only if nothing was launched between two
answers: in a run that works, the counts of its ranks differ at almost every moment. A rank that waits for another one
in any communicator is not to blame in the others.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.analysis.attempts.ranks import ranks_text
from trainmon.lib import Instant, by_key, clean, counted, duration, listed
from trainmon.model import RankLook, RankMap, RankProcess

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


# ---- two answers → which ranks have not launched what the others wait for --------------------------------------------

LINES = 40
"""The most lines of evidence."""

UNSEEN = "NCCL does not count Send, Recv, AlltoAll and CUDA graphs: a rank that is behind may wait in one of these"


class Circumstances(NamedTuple):
    """What is known beside the answers."""

    first_at: Instant
    at: Instant
    """When the two answers came."""
    known: RankMap | None = None
    ranks: Mapping[tuple[str, int], int] = {}
    """The rank of the training of each process, by the host in the answer and its pid, where that is proven."""
    calm: str = ""
    """Why the run need not be late. Then what the answers show may be normal, and names nobody."""
    is_late: bool = False
    """Whether the run makes no step although it should."""
    are_gpus_busy: bool | None = None
    step: int | None = None
    before: RankLook | None = None
    """The last look since its last step."""


def placed(
    answer: Answer, processes: Mapping[str, Mapping[int, RankProcess]], world: int
) -> dict[tuple[str, int], int]:
    """The rank of each process of an answer. A host of the answer is a node if all its processes there are ranks of
    this node and of no other one. Where not all `world` ranks are known, one pid alone may be equal by chance."""
    ranks = {
        node: {pid: rank for rank, one in own.items() for pid in (*one.workers, one.pid)}
        for node, own in processes.items()
    }
    least = 1 if sum(map(len, processes.values())) == world else 2
    found: dict[tuple[str, int], int] = {}
    for host, pids in by_key(answer.processes).items():
        nodes = [node for node, own in ranks.items() if own.keys() >= {*pids}]
        if len(nodes) == 1 and len(pids) >= least:
            found |= {(host, pid): ranks[nodes[0]][pid] for pid in pids}
    return found


def call(first: Answer, second: Answer, now: Circumstances) -> RankLook:
    """What two answers of a job, some time apart, show."""
    both = {key: (first.communicators[key], one) for key, one in second.communicators.items()
            if key in first.communicators}  # fmt: skip
    passed = duration(now.at - now.first_at)
    base = RankLook(source="nccl-ras", at=now.at, summary="", step=now.step, lines=evidence(second, now))
    if first.communicators.keys() != second.communicators.keys() or any(has_grown(*pair) for pair in both.values()):
        return replace(base, summary=f"the ranks go on: they have launched more operations of NCCL within {passed}")
    silent = {one: dead and old.silent[one] for old, new in both.values() for one, dead in new.silent.items()
              if one in old.silent}  # fmt: skip
    if silent:
        return gone(base, silent, now)
    if late := culprits(second):
        return behind(base, second, late, now)
    if any(map(differing, second.communicators.values())):
        text = "ranks wait for each other: some have launched more of one operation, others more of another"
        return accused(base, (), text, "compare the stacks of all ranks: they do not launch in the same order", now)
    errors = list(dict.fromkeys(error for one in second.communicators.values() for error in one.errors))
    if errors:
        own = [process for text, process in errors if text == "unhandled CUDA error"]
        who, text = named(own or [process for _, process in errors], now), errors[0][0]
        text = "unhandled CUDA error" if own else text
        return accused(base, own, f"{who} reports to NCCL: {text}", "see the rank's log, and the Xids of its GPU", now)
    return equal(base, second, now)


# ---- what the answers show -------------------------------------------------------------------------------------------


def gone(base: RankLook, silent: Mapping[Process, bool], now: Circumstances) -> RankLook:
    """Ranks whose processes do not answer the others."""
    dead = [one for one, is_dead in silent.items() if is_dead]
    who, is_one = named(dead or silent, now), len(dead or silent) == 1
    text = f"{who} {'does' if is_one else 'do'} not answer the other processes of NCCL"
    advice = "see whether the rank's process is stopped, or its node unreachable"
    if dead:
        text = f"{who} {'has' if is_one else 'have'} left: NCCL has reached no process there for a minute"
        advice = "see whether the rank's process and node still run, and read the end of its log"
    return accused(base, dead or silent, text, advice, now)


def behind(base: RankLook, answer: Answer, late: frozenset[Process], now: Circumstances) -> RankLook:
    """Ranks that have launched less than others."""
    parts = [
        (one.size, sum(map(len, sides.values())) - len(sides[min(sides)]), operation, sides)
        for one in answer.communicators.values()
        for operation, sides in differing(one).items()
        if not sides[min(sides)].isdisjoint(late)
    ]
    size, ahead, operation, sides = max(parts, key=lambda part: part[:2])
    least = min(sides)
    here = sides[least] & late
    last = now.before
    is_same = last is not None and last.ranks and (last.count, last.ranks) == (least, ranks_of(late, now))
    since = (last.since if last is not None and is_same else None) or now.first_at
    has = "has" if len(here) == 1 else "have"
    stays = f"{has} been at {least:,}" if least else f"{has} launched none"
    text = f"{ahead:,} of {size:,} ranks have launched {operation} {least + 1:,}"
    text += f"; {named(here, now)} {stays} for {duration(now.at - since)}"
    if rest := late - here:
        text += f"; {named(rest, now)} {'is' if len(rest) == 1 else 'are'} behind in another communicator"
    base = replace(base, summary="", count=least, since=since, lines=(*base.lines, UNSEEN))
    return accused(base, late, text, "look at the stack, state and log of each rank behind, then at its node", now)


def equal(base: RankLook, answer: Answer, now: Circumstances) -> RankLook:
    """Nobody is behind. By itself, that says nothing: a run that loads data or saves looks the same."""
    largest = max(answer.communicators.values(), key=lambda one: one.size, default=None)
    if largest is None or not all(one.is_going for one in answer.communicators.values()):
        return replace(base, summary="no rank is behind, as far as NCCL knows: not all its communicators are in use")
    count, operation = max(((max(sides), operation) for operation, sides in largest.sides.items()), default=(0, ""))
    text = f"all {largest.size:,} ranks have launched {operation} {count:,}" if count else "no rank has launched any"
    if not now.is_late or (now.known is not None and now.known.ranks > len(answer.processes)):
        return replace(base, summary=f"{text}: none is behind, so the cause is not shown")
    text += f" and nothing more for {duration(now.at - now.first_at)}"
    if now.are_gpus_busy is False:
        advice = "look at the stacks of all ranks: they may wait for data, for a checkpoint, or for each other"
        return replace(
            base, summary=f"{text}; the GPUs are idle: all wait for something outside of NCCL", advice=advice
        )
    where = "the fabric or a GPU" if now.are_gpus_busy else "the fabric, a GPU, or something outside of NCCL"
    advice = "compare the InfiniBand ports, the NVLink errors and the Xids of its nodes; then requeue it"
    return replace(base, summary=f"{text}: none finishes, {where} holds them up", advice=advice)


def accused(base: RankLook, who: Collection[Process], text: str, advice: str, now: Circumstances) -> RankLook:
    """The look that names ranks, unless the run makes its steps."""
    if now.calm:
        return replace(base, summary=f"{text}; {now.calm}")
    return replace(base, summary=text, ranks=ranks_of(who, now), advice=advice)


# ---- communicators ---------------------------------------------------------------------------------------------------


def has_grown(one: Communicator, other: Communicator) -> bool:
    """Whether something was launched between two answers."""
    was, now = counts_of(one), counts_of(other)
    return any(key[1] in one.silent or was.get(key) != count for key, count in now.items())


def counts_of(one: Communicator) -> dict[tuple[str, Process], int]:
    return {
        (operation, process): count
        for operation, sides in one.sides.items()
        for count, processes in sides.items()
        for process in processes
    }


def differing(one: Communicator) -> dict[str, Mapping[int, frozenset[Process]]]:
    """The operations of which its ranks have launched different numbers. While they initialise or end it, they do."""
    return {name: sides for name, sides in one.sides.items() if len(sides) > 1} if one.is_going else {}


def culprits(answer: Answer) -> frozenset[Process]:
    """Who is behind in some communicator, and waits for nobody in any."""
    each = [sides for one in answer.communicators.values() for sides in differing(one).values()]
    waits = (processes for sides in each for count, processes in sides.items() if count > min(sides))
    return frozenset[Process]().union(*(sides[min(sides)] for sides in each)).difference(*waits)


# ---- words -----------------------------------------------------------------------------------------------------------


def ranks_of(processes: Iterable[Process], now: Circumstances) -> tuple[int, ...]:
    """The ranks of the training of these processes, where that is proven."""
    found = (now.ranks.get((one.host, one.pid)) for one in processes)
    return tuple(sorted({rank for rank in found if rank is not None}))


def named(processes: Iterable[Process], now: Circumstances) -> str:
    """`rank 118 (gpu-014 GPU 6)`; `process 1015 on 10.0.0.2 (GPU 7)`, if its rank is not proven."""
    others = [one for one in sorted(processes) if (one.host, one.pid) not in now.ranks]
    texts = [f"process {one.pid} on {one.host}{f' (GPU {one.gpu})' if one.gpu else ''}" for one in others]
    ranks = ranks_of(processes, now)
    return " and ".join(filter(None, (ranks_text(ranks, now.known) if ranks else "", listed(texts, 3))))


def evidence(answer: Answer, now: Circumstances) -> tuple[str, ...]:
    """What an answer shows beside what is equal, the largest communicators first."""
    head = (
        f"NCCL {answer.version}: {counted(len(answer.communicators), 'communicator')}"
        + f" of {len(answer.processes):,} processes"
        + ("" if now.known is None else f", of {counted(now.known.ranks, 'rank')}")
    )
    each = sorted(answer.communicators.items(), key=lambda item: -item[1].size)
    lines = (f"{key.split()[0]} ({one.size:,} ranks): {text}" for key, one in each for text in _lines(one, now))
    return head, *islice(lines, LINES)


def _lines(one: Communicator, now: Circumstances) -> Iterator[str]:
    for operation, sides in one.sides.items():
        if len(sides) > 1:
            for count, processes in sorted(sides.items()):
                who = f": {named(processes, now)}" if len(processes) * 2 <= one.size else ""
                yield f"{counted(len(processes), 'rank')} at {operation} {count:,}{who}"
    for process, dead in one.silent.items():
        yield f"{named([process], now)} is {'dead' if dead else 'unresponsive'}"
    yield from (f"{named([process], now)}: {text}" for text, process in one.errors)
