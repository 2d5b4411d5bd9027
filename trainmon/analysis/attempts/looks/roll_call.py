"""Two answers of NCCL's RAS service → which ranks have not launched what the others wait for. Pure.

The lower count is late, however few the others are. A difference counts only if nothing was launched between the two
answers: in a run that works, the counts of its ranks differ at almost every moment. A rank that waits for another one
in any communicator is not to blame in the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.analysis.attempts.looks.nccl_ras import Answer, Communicator, Process, Side
from trainmon.analysis.attempts.ranks import ranks_text
from trainmon.lib import Instant, counted, duration, listed
from trainmon.model import RankLook, RankMap, RankProcess

LINES = 40
"""The most lines of evidence."""

UNSEEN = "NCCL counts no Send, Recv and AlltoAll, and nothing in CUDA graphs: who is behind may wait in one of these"


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
    for host, pids in answer.pids.items():
        nodes = [node for node, own in ranks.items() if pids <= own.keys()]
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
        return replaced(base, f"the ranks go on: they have launched more operations of NCCL within {passed}")
    silent = {one: dead and old.silent[one] for old, new in both.values() for one, dead in new.silent.items()
              if one in old.silent}  # fmt: skip
    if silent:
        return gone(base, second, silent, now)
    if (late := culprits(second)) or any(map(differing, second.communicators.values())):
        return behind(base, second, late, now)
    errors = list(dict.fromkeys(error for one in second.communicators.values() for error in one.errors))
    if errors:
        own = [process for text, process in errors if text == "unhandled CUDA error"]
        who, text = named(own or [process for _, process in errors], now), errors[0][0]
        text = "unhandled CUDA error" if own else text
        return accused(base, own, f"{who} reports to NCCL: {text}", "see its log, and the Xids of its GPU", now)
    return equal(base, second, now)


# ---- what the answers show -------------------------------------------------------------------------------------------


def gone(base: RankLook, answer: Answer, silent: Mapping[Process, bool], now: Circumstances) -> RankLook:
    """Ranks whose processes do not answer the others."""
    dead = [one for one, is_dead in silent.items() if is_dead]
    who, is_one = named(dead or silent, now), len(dead or silent) == 1
    text = f"{who} {'does' if is_one else 'do'} not answer the other processes of NCCL"
    advice = "see whether its process is stopped, or its node does not answer"
    if dead:
        text = f"{who} {'has' if is_one else 'have'} left: NCCL has reached no process there for a minute"
        advice = "see whether its process and its node still run, and what its log says last"
    shown = answer.is_complete or now.is_late
    return accused(base, dead or silent, text, advice, now, "" if shown else "whether the others go on is not shown")


def behind(base: RankLook, answer: Answer, late: Collection[Process], now: Circumstances) -> RankLook:
    """Ranks that have launched less than others."""
    parts = [
        (one.size, sum(side.ranks for side in sides.values()) - sides[min(sides)].ranks, operation, sides)
        for one in answer.communicators.values()
        for operation, sides in differing(one).items()
        if not late or not sides[min(sides)].processes.isdisjoint(late)
    ]
    size, ahead, operation, sides = max(parts, key=lambda part: part[:2])
    if not late and answer.is_complete:
        text = "ranks wait for each other: some have launched more of one operation, others more of another"
        return accused(base, (), text, "compare the stacks of its ranks: they do not launch in the same order", now)
    least = min(sides)
    here = sides[least].processes & {*late}
    last = now.before
    is_same = last is not None and last.ranks and (last.count, last.ranks) == (least, ranks_of(late, now))
    since = (last.since if last is not None and is_same else None) or now.first_at
    lower = counted(sides[least].ranks, "rank")
    why = "several communicators differ, and it is not known who waits for whom"
    doubt = why if not late and sides[least].is_listed else ""
    who = named(here, now) if late else lower if doubt else f"{lower}, which this NCCL does not name,"
    is_one = len(here) == 1 if late else sides[least].ranks == 1
    stays = f"{'stays' if is_one else 'stay'} at {least:,}" if least else f"{'has' if is_one else 'have'} launched none"
    text = f"{ahead:,} of {size:,} ranks have launched {operation} {least + 1:,}"
    text += f"; {who} {stays} for {duration(now.at - since)}"
    if rest := {*late} - here:
        text += f"; {named(rest, now)} {'is' if len(rest) == 1 else 'are'} behind in another communicator"
    base = replaced(base, "", count=least, since=since, lines=(*base.lines, UNSEEN))
    return accused(base, late, text, "look at its process: its stack, its state, its log; then at its node", now, doubt)


def equal(base: RankLook, answer: Answer, now: Circumstances) -> RankLook:
    """Nobody is behind. By itself, that says nothing: a run that loads data or saves looks the same."""
    largest = max(answer.communicators.values(), key=lambda one: one.size, default=None)
    if largest is None or not all(one.is_going for one in answer.communicators.values()):
        return replaced(base, "no rank is behind, as far as NCCL knows: not all its communicators are in use")
    counts = [(max(sides), operation) for operation, sides in largest.sides.items()]
    what = f"{max(counts)[1]} {max(counts)[0]:,}" if counts else "the same operations"
    text = f"all {largest.size:,} ranks have launched {what}"
    if not answer.is_complete:
        return replaced(base, f"{text}; whether they still launch new ones, this NCCL does not show")
    if not now.is_late or (now.known is not None and now.known.ranks > answer.processes):
        return replaced(base, f"{text}: none is behind, which says nothing more")
    text += f" and nothing more for {duration(now.at - now.first_at)}"
    if now.are_gpus_busy is False:
        advice = "look at the stacks of its ranks: they may wait for data, for a checkpoint, or for each other"
        return replaced(base, f"{text}; the GPUs are idle: all wait for something outside of NCCL", advice=advice)
    where = "the fabric or a GPU" if now.are_gpus_busy else "the fabric, a GPU, or something outside of NCCL"
    advice = "compare the InfiniBand ports, the NVLink errors and the Xids of its nodes; then requeue it"
    return replaced(base, f"{text}: none finishes, {where} holds them up", advice=advice)


def replaced(base: RankLook, summary: str, **more: Any) -> RankLook:
    return replace(base, summary=summary, **more)


def accused(
    base: RankLook, who: Collection[Process], text: str, advice: str, now: Circumstances, doubt: str = ""
) -> RankLook:
    """The look that names ranks, unless there is a doubt: the run makes its steps."""
    if doubt := now.calm or doubt:
        return replaced(base, f"{text}; {doubt}")
    return replaced(base, text, ranks=ranks_of(who, now), advice=advice)


# ---- communicators ---------------------------------------------------------------------------------------------------


def has_grown(one: Communicator, other: Communicator) -> bool:
    """Whether something was launched between two answers. Of ranks that one answer does not name, only how many have
    launched how much is known."""
    was, now = counts_of(one), counts_of(other)
    if any(process in one.silent or was.get((name, process), count) != count for (name, process), count in now.items()):
        return True
    sizes, later = (
        {(name, count): side.ranks for name, sides in each.sides.items() for count, side in sides.items()}
        for each in (one, other)
    )
    return not one.silent and not other.silent and sizes != later


def counts_of(one: Communicator) -> dict[tuple[str, Process], int]:
    return {
        (operation, process): count
        for operation, sides in one.sides.items()
        for count, side in sides.items()
        for process in side.processes
    }


def differing(one: Communicator) -> dict[str, Mapping[int, Side]]:
    """The operations of which its ranks have launched different numbers. While they initialise or end it, they do."""
    return {name: sides for name, sides in one.sides.items() if len(sides) > 1} if one.is_going else {}


def culprits(answer: Answer) -> frozenset[Process]:
    """Who is behind in some communicator, and waits for nobody in any. Where not all names are known, only one
    communicator may differ, and all who are behind in one of its operations must be listed: as all launch in the same
    order, who is to blame is behind in each."""
    uneven = [own for one in answer.communicators.values() if (own := differing(one))]
    each = [sides for one in uneven for sides in one.values()]
    least = [sides[min(sides)] for sides in each]
    if not answer.is_complete:
        is_proof = len(uneven) == 1 and all(side.is_listed for side in least)
        return frozenset.intersection(*(side.processes for side in least)) if is_proof else frozenset()
    waits = (side.processes for sides in each for count, side in sides.items() if count > min(sides))
    return frozenset[Process]().union(*(side.processes for side in least)).difference(*waits)


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
        + (f" of {answer.processes} processes" if answer.processes else "")
        + ("" if now.known is None else f", of {counted(now.known.ranks, 'rank')}")
    )
    each = sorted(answer.communicators.items(), key=lambda item: -item[1].size)
    lines = (f"{key.split()[0]} ({one.size:,} ranks): {text}" for key, one in each for text in _lines(one, now))
    return head, *islice(lines, LINES)


def _lines(one: Communicator, now: Circumstances) -> Iterator[str]:
    for operation, sides in one.sides.items():
        if len(sides) > 1:
            for count, side in sorted(sides.items()):
                who = f": {named(side.processes, now)}" if side.processes and side.ranks * 2 <= one.size else ""
                yield f"{counted(side.ranks, 'rank')} at {operation} {count:,}{who}"
    for process, dead in one.silent.items():
        yield f"{named([process], now)} is {'dead' if dead else 'unresponsive'}"
    yield from (f"{named([process], now)}: {text}" for text, process in one.errors)
    yield from one.notes
