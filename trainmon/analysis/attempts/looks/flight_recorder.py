"""Dumps of PyTorch's flight recorder → the ranks that hold their group up, or what else is wrong. Pure.

A rank is named only if its own dump shows that it has not called an operation that others wait in, and that it waits in
no other one itself. A rank without a dump is said, and never named by that alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

import msgspec

from trainmon.analysis.attempts.ranks import CLOCKS, ranks_text
from trainmon.lib import Instant, Seconds, clean, counted, group_by
from trainmon.model import Attempt, RankLook, RankMap, Run

# ---- what a node says of the dumps there. Times are by our clock, texts are untrusted. -------------------------------


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One call of a rank. Operations with one number are one operation for all ranks of a group."""

    number: int
    names: str
    """Several, if they were called together."""
    sizes: str
    state: int
    """0: called, 1: started on the GPU, 2: finished."""
    called_at: Instant
    line: str
    """The line of the trainer that called it; empty if that is not known."""

    @property
    def name(self) -> str:
        """As PyTorch's own messages name it: ALLREDUCE."""
        return self.names.replace("all_to_all", "alltoall").replace("all_", "all").upper()


class GroupLog(msgspec.Struct, frozen=True, array_like=True):
    """The last operations of one rank in one process group; its sends and receipts are apart."""

    key: str
    title: str
    """`default_pg`: that of all ranks."""
    members: str
    """`0-7` or `0,8`; empty if they are not known."""
    last: int
    """The number of its last operation."""
    operations: tuple[Operation, ...]


class RankDump(msgspec.Struct, frozen=True, array_like=True):
    """What the dump of one rank says."""

    written_at: Instant
    path: str
    calls: int
    first_at: Instant
    """From when on it has all calls. 0: it has lost none."""
    last_at: Instant
    """When the last one was."""
    groups: tuple[GroupLog, ...]

    def is_same(self, other: RankDump) -> bool:
        """Whether two nodes have read one file. Their clocks differ."""
        one, two = ((each.path, {(log.key, log.members, log.last) for log in each.groups}) for each in (self, other))
        return one == two


# ---- which dumps are those of an attempt -----------------------------------------------------------------------------

LATE: Seconds = 300.0
"""How much later than a dump a line of the log may seem: what a trainer has not flushed comes when it ends."""


def written_since(attempt: Attempt, stepped_at: Instant | None) -> Instant:
    """What is older is of an earlier attempt, or of an earlier standstill of this one, which has made steps since."""
    last = 0.0 if stepped_at is None else stepped_at - (0.0 if attempt.told_end is None else LATE)
    return max(attempt.started_at or 0.0, last) - CLOCKS


TIMED_OUT = "Watchdog caught collective operation timeout"
"""What PyTorch logs when it writes its dumps. The ranks end soon after that."""
READ_AFTER: Seconds = 300.0
LAST_LINES = 50


def read_when(attempt: Attempt, run: Run | None, now: Instant) -> str:
    """Why the dumps of an attempt are to be read now, before its nodes are cleaned up; empty if they are not."""
    if (end := attempt.told_end) is not None:
        is_well = end.exit_code == 0 or (end.scheduler_state or "").startswith("COMPLETED")
        return "" if is_well or now - end.noticed_at > READ_AFTER else "it has ended"
    lines = () if run is None or run.log is None else run.log.lines[-LAST_LINES:]
    return "an operation has timed out" if any(TIMED_OUT in line for line in lines) else ""


def of_another(rank: int, dump: RankDump, attempt: Attempt, now: Instant) -> str:
    """Why a dump cannot be of this attempt; empty if it can."""
    ranks = None if attempt.ranks is None else attempt.ranks.ranks
    sizes = {len(members_of(log.members)) for log in dump.groups if log.title == "default_pg" and log.members}
    if ranks is not None and (rank >= ranks or sizes - {ranks}):
        return "it is of a training with another number of ranks"
    until = now if attempt.told_end is None else attempt.told_end.at
    is_during = (attempt.started_at or 0.0) - CLOCKS <= dump.last_at <= until + CLOCKS
    return "" if is_during or not dump.calls else "it is of another attempt"


# ---- operations that some ranks have called and not finished ---------------------------------------------------------


class Wait(NamedTuple):
    """The first operation of a group that some of its ranks have called and not finished."""

    what: str
    """`ALLREDUCE 9`, `RECV 1<-0`."""
    group: str
    """`group default_pg`, `group tp (ranks 0-7)`."""
    number: int
    callers: Mapping[int, Operation]
    """By rank: those that wait in it."""
    absent: frozenset[int]
    """Those whose dumps show that they have not called it."""
    unread: frozenset[int]
    """Those of which no dump shows anything of it."""

    @property
    def since(self) -> Instant:
        return max(one.called_at for one in self.callers.values())

    @property
    def kinds(self) -> Mapping[str, list[int]]:
        """The ranks by what they call, the most first; with sizes, where these must be equal and differ."""
        by_name = group_by(self.callers, lambda rank: self.callers[rank].name)
        if len(by_name) == 1 and by_name.keys() <= EQUAL:
            by_name = group_by(self.callers, lambda rank: f"{self.callers[rank].name} of {self.callers[rank].sizes}")
        return dict(sorted(by_name.items(), key=lambda each: -len(each[1])))


EQUAL = {"ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"}
"""Operations that need the same sizes from all ranks."""
SHORT = 24
"""Characters of the ranks of a group in a sentence."""
MOST_RANKS = 100_000
PEER = re.compile(r"(?:send|recv) \d+(?:->|<-)(\d{1,6})")


def members_of(text: str) -> frozenset[int]:
    first, _, last = text.partition("-")
    until = min(int(last or 0) + 1, MOST_RANKS)
    return frozenset(range(int(first), until) if last else map(int, filter(None, text.split(","))))


def waits_of(dumps: Mapping[int, RankDump], ranks: int | None) -> list[Wait]:
    """All such operations. `ranks`: how many ranks the training has."""
    logs, found = ((rank, log) for rank, dump in dumps.items() for log in dump.groups), list[Wait]()
    for each in group_by(logs, lambda one: (one[1].key, one[1].members)).values():
        own, log = dict(each), each[0][1]
        everybody = frozenset(range(ranks if log.title == "default_pg" and ranks else 0))
        members = members_of(log.members) or everybody or frozenset(own)
        who = f"ranks {log.members}" if len(log.members) <= SHORT else f"{len(members)} ranks"
        group = f"group {log.title}" + f" ({who})" * (log.members != "" and log.title != "default_pg")
        left = {(one.number, rank): one for rank, log in each for one in log.operations if one.state < 2}
        number = min(left, default=(0, 0))[0]
        callers = {rank: one for (each, rank), one in left.items() if each == number}
        if any(PEER.search(one.names) for one in callers.values()):
            found += _exchanges(group, sorted(members), left, dumps)
        elif callers:
            first_at = min(one.called_at for one in callers.values())
            absent = {rank for rank, log in own.items() if log.last < number}
            absent |= {rank for rank in members & dumps.keys() - own.keys() if dumps[rank].first_at < first_at}
            what, unread = f"{callers[min(callers)].name} {number}", members - own.keys() - absent
            found.append(Wait(what, group, number, callers, frozenset(absent), unread))
    return [one for one in found if _is_long(one, dumps)]


LONG: Seconds = 10.0
"""How long before the dumps an operation was called in which ranks wait: those of a training that goes on are not all
written in one moment. torch writes them when an operation has taken minutes."""


def _is_long(one: Wait, dumps: Mapping[int, RankDump]) -> bool:
    first = min(each.called_at for each in one.callers.values())
    return all(dumps[rank].written_at - first >= LONG for rank in one.absent | one.callers.keys())


def _exchanges(
    group: str, members: list[int], left: Mapping[tuple[int, int], Operation], dumps: Mapping[int, RankDump]
) -> Iterator[Wait]:
    """Sends and receipts that wait for the other rank. Their numbers say nothing to that one."""
    peers = ((rank, one, int(peer)) for (_, rank), one in left.items() for peer in PEER.findall(one.names))
    waiting = {(rank, members[peer]): one for rank, one, peer in peers if peer < len(members)}
    for (rank, peer), one in waiting.items():
        absent = frozenset({peer} & dumps.keys()) if (peer, rank) not in waiting else frozenset[int]()
        yield Wait(one.name, group, one.number, {rank: one}, absent, frozenset({peer} - dumps.keys()))


# ---- which of them is the reason for the others ----------------------------------------------------------------------

Kind = Literal["ranks disagree", "never entered", "not finished", "no dump"]


class Finding(NamedTuple):
    """An operation in which ranks wait, and that is no consequence of another one."""

    kind: Kind
    wait: Wait
    ranks: tuple[int, ...]
    """Those that it is about."""


def judge(waits: Collection[Wait]) -> list[Finding]:
    """What is wrong, the clearest first. Of several waits nothing is left if ranks wait for each other."""
    waiting, found = {rank for one in waits for rank in one.callers}, list[Finding]()
    for one in waits:
        kinds, own = one.kinds, one.absent - waiting
        if len(kinds) > 1:
            found.append(Finding("ranks disagree", one, tuple(sorted([*kinds.values()][-1]))))
        elif own:
            found.append(Finding("never entered", one, tuple(sorted(own))))
        elif not one.absent and not any(_is_before(other, one) for other in waits):
            kind: Kind = "no dump" if one.unread else "not finished"
            found.append(Finding(kind, one, tuple(sorted(one.unread or one.callers))))
    return sorted(found, key=lambda each: (get_args(Kind).index(each.kind), each.wait.since))


def _is_before(other: Wait, one: Wait) -> bool:
    """Whether a rank that waits in one has waited in the other before: its GPU has not come to this one."""
    both = other.callers.keys() & one.callers.keys()
    return any(other.callers[rank].called_at < one.callers[rank].called_at for rank in both)


# ---- what a person reads of it ---------------------------------------------------------------------------------------

LINES, AT_MOST = 12, 4

ADVICE: Mapping[Kind, str] = {
    "ranks disagree": "Compare the lines that call these: a branch depends on the rank or on its data.",
    "never entered": "Look at the stack of this rank, at its log at that time, and at its node.",
    "not finished": "Check the GPUs and the network of these nodes: Xids, link errors, NCCL's own messages.",
    "no dump": "Look at its node, and ask again soon: its dump may still come.",
}


def look_of(
    dumps: Mapping[int, RankDump], unread: Mapping[int, str], known: RankMap | None, step: int | None, now: Instant
) -> RankLook:
    """What the dumps show. `unread`: why that of a rank was not read. `known`: where the ranks run."""
    waits = waits_of(dumps, None if known is None else known.ranks)
    found = judge(waits)
    first = found[0] if found else None
    nothing = "the ranks wait for each other" if waits else "no rank waits in an operation"
    summary = _sentence(first, known) if first else f"{nothing}, say {counted(len(dumps), 'dump')} of PyTorch"
    told = [first.wait] if first else waits[:AT_MOST]
    lines = [
        *(_sentence(one, known) for one in found[1:AT_MOST]),
        *(line for one in told for line in _calls(one, known)),
    ]
    if first is not None and first.kind == "never entered":
        lines += [_last_call(rank, dumps[rank], known) for rank in first.ranks[:AT_MOST]]
    missing = group_by(sorted(unread), lambda rank: unread[rank])
    lines += [f"no dump of {ranks_text(ranks, known)}: {why}" for why, ranks in missing.items()][:AT_MOST]
    return RankLook(
        source="flight-recorder",
        at=now,
        summary=clean(summary, 500),
        ranks=first.ranks if first is not None and first.kind == "never entered" else (),
        since=None if first is None else first.wait.since,
        step=step,
        count=None if first is None else first.wait.number,
        lines=tuple(clean(line, 300) for line in lines[:LINES]),
        advice="" if first is None else ADVICE[first.kind],
    )


def _sentence(one: Finding, known: RankMap | None) -> str:
    kind, wait, ranks = one
    names, waiting = ranks_text(ranks, known), counted(len(wait.callers), "rank")
    waiting_in, since = f"{waiting} wait{'s' * (len(wait.callers) == 1)} in", f"since {clock(wait.since)}"
    what, calls = f"{wait.what} of {wait.group}", [f"{len(own)} call {name}" for name, own in wait.kinds.items()]
    return {
        "ranks disagree": f"ranks disagree about {wait.number} of {wait.group}: {', '.join(calls)}: {names}",
        "never entered": f"{names} never entered {what}; {waiting_in} it {since}",
        "not finished": f"{waiting} entered {what}, and none of them has finished it {since}: fabric or GPU",
        "no dump": f"{waiting_in} {what} {since}, and no dump shows whether {names} entered it",
    }[kind]


def _calls(one: Wait, known: RankMap | None) -> Iterator[str]:
    """From which lines it was called, and by whom; the rarest first."""
    by_call = group_by(sorted(one.callers), lambda rank: (one.callers[rank].name, one.callers[rank].line))
    for (name, line), ranks in sorted(by_call.items(), key=lambda each: len(each[1]))[:AT_MOST]:
        yield f"{name}{' at ' * bool(line)}{line}: {ranks_text(ranks, known)}"
    slow = [rank for rank, each in one.callers.items() if each.state == 0]
    if 0 < len(slow) < len(one.callers):
        yield f"not started on the GPU, which is not done with what came before: {ranks_text(slow, known)}"


def _last_call(rank: int, dump: RankDump, known: RankMap | None) -> str:
    calls = ((each, log) for log in dump.groups for each in log.operations)
    for last, log in sorted(calls, key=lambda each: -each[0].called_at)[:1]:
        how = f"{' at ' * bool(last.line)}{last.line}, {clock(last.called_at)}, {'not ' * (last.state < 2)}finished"
        return f"the last call of {ranks_text([rank], known)} was {last.name} {last.number} of group {log.title}{how}"
    return f"{ranks_text([rank], known)} has called nothing"


def clock(at: Instant) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
