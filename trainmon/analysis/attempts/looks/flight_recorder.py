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
from trainmon.model import Attempt, RankLook, RankMap, Run, State

# ---- what a node says of the dumps there. Times are by our clock, texts are untrusted. -------------------------------


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One call of a rank. Operations with one number are one operation for all ranks of a group."""

    number: int
    name: str
    """As PyTorch's own messages name it: ALLREDUCE. Several, if they were called together."""
    sizes: str
    is_over: bool
    called_at: Instant
    line: str
    """` at `, and the line of the trainer that called it; empty if that is not known."""


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
    first_at: Instant
    """From when on it has all calls. 0: it has lost none."""
    last_at: Instant
    """When the last one was. 0: it has none."""
    groups: tuple[GroupLog, ...]


# ---- which dumps are those of an attempt -----------------------------------------------------------------------------

LATE: Seconds = 300.0
"""How much later than a dump a line of the log may seem: what a trainer has not flushed comes when it ends."""


def written_since(attempt: Attempt, stepped_at: Instant | None, processes_at: Instant | None = None) -> Instant:
    """What is older is of an earlier attempt, of processes that were restarted, or of an earlier standstill of this
    attempt, which has made steps since."""
    last = 0.0 if stepped_at is None else stepped_at - (0.0 if attempt.told_end is None else LATE)
    return max(attempt.started_at or 0.0, processes_at or 0.0, last) - CLOCKS


TIMED_OUT = "Watchdog caught collective operation timeout"
"""What PyTorch logs when it writes its dumps. The ranks end soon after that."""
READ_AFTER, LAST_LINES = 300.0, 50


def is_due(attempt: Attempt, run: Run | None, now: Instant) -> bool:
    """Whether the dumps of an attempt are to be read now, before its nodes are cleaned up."""
    if (end := attempt.told_end) is not None:
        return end.exit_code != 0 and end.scheduler_state != "COMPLETED" and now - end.noticed_at <= READ_AFTER
    return run is not None and run.log is not None and any(TIMED_OUT in line for line in run.log.lines[-LAST_LINES:])


DEFAULT = re.compile(r"/(?:comm_lib|nccl)_trace_rank_\d+\Z")
"""Where PyTorch writes without a setting: in /tmp, or in the home directory, which other nodes may share."""


def rivals(attempt: Attempt, state: State, since: Instant) -> list[tuple[Attempt, Instant]]:
    """Attempts of other runs that may have written to the same places since then, as they have as many ranks; each with
    the time of its last step: its dumps are later."""
    ranks = None if attempt.ranks is None else attempt.ranks.ranks
    return [
        (one, run.progress.at or 0.0)
        for one in state.attempts.values()
        if one.run_id != attempt.run_id and one.cluster == attempt.cluster
        if one.ranks is not None and ranks in (None, one.ranks.ranks)
        if one.told_end is None or one.told_end.at >= since
        if (run := state.runs.get(one.run_id)) is not None
    ]


def of_another(
    rank: int,
    dump: RankDump,
    attempt: Attempt,
    now: Instant,
    node: str = "",
    others: Collection[tuple[Attempt, Instant]] = (),
) -> str:
    """Why a dump cannot be of this attempt, or may be of one of the others; empty if it is its own."""
    ranks = None if attempt.ranks is None else attempt.ranks.ranks
    sizes = {len(members_of(log.members)) for log in dump.groups if log.title == "default_pg" and log.members}
    if ranks is not None and (rank >= ranks or sizes - {ranks}):
        return "it is of a training with another number of ranks"
    until = now if attempt.told_end is None else attempt.told_end.at
    if dump.last_at and not (attempt.started_at or 0.0) - CLOCKS <= dump.last_at <= until + CLOCKS:
        return "it is of another attempt"
    is_shared = dump.path.rpartition("/")[0] != "/tmp"
    may = (other.run_id for other, at in others if at < dump.written_at and (is_shared or node in other.nodes))
    name = next(may, "") if DEFAULT.search(dump.path) else ""
    return f"{name} may have written it: set TORCH_FR_DUMP_TEMP_FILE for each run" if name else ""


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
    called: tuple[Instant, Instant]
    """When the first and the last of those that wait called it."""
    is_known: bool = True
    """Whether it is known which ranks the group has."""

    @property
    def kinds(self) -> Mapping[str, list[int]]:
        """The ranks by what they call, the most first; with sizes, where these must be equal and differ."""
        by_name = group_by(self.callers, lambda rank: self.callers[rank].name)
        if len(by_name) == 1 and by_name.keys() <= EQUAL:
            by_name = group_by(self.callers, lambda rank: f"{self.callers[rank].name} of {self.callers[rank].sizes}")
        return dict(sorted(by_name.items(), key=lambda each: -len(each[1])))


EQUAL = {"ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"}
"""Operations that need the same sizes from all ranks."""
AHEAD = 8
"""How many operations a rank may have finished that others have not: the source of broadcasts waits for nobody. What is
further ahead is of another training, which has written to the same place."""
SHORT, MOST_RANKS = 24, 100_000
"""Characters of the ranks of a group in a sentence; and ranks of a group."""
PEER = re.compile(r"(SEND|RECV) \d+(?:->|<-)(\d{1,6})")
OTHER = {"SEND": "RECV", "RECV": "SEND"}


def members_of(text: str) -> frozenset[int]:
    first, _, last = text.partition("-")
    until = min(int(last or 0) + 1, MOST_RANKS)
    return frozenset(range(int(first), until) if last else map(int, filter(None, text.split(","))))


def waits_of(dumps: Mapping[int, RankDump], ranks: int | None) -> Iterator[Wait]:
    """All such operations. `ranks`: how many ranks the training has."""
    logs = ((rank, log) for rank, dump in dumps.items() for log in dump.groups)
    for each in group_by(logs, lambda one: (one[1].key, one[1].members)).values():
        log = each[0][1]
        members = members_of(log.members) or frozenset(range(ranks or 0) if log.title == "default_pg" else ())
        who = f" (ranks {log.members})" if len(log.members) <= SHORT else f" ({len(members)} ranks)"
        group = f"group {log.title}{who if log.members and log.title != 'default_pg' else ''}"
        yield from (_exchanges if log.key.startswith("p2p") else _collectives)(group, members, dict(each), dumps)


def _collectives(
    group: str, members: frozenset[int], logs: Mapping[int, GroupLog], dumps: Mapping[int, RankDump]
) -> Iterator[Wait]:
    left = {rank: one for rank, log in logs.items() for one in reversed(log.operations) if not one.is_over}
    number = min((one.number for one in left.values()), default=0)
    if callers := {rank: one for rank, one in left.items() if one.number == number}:
        called = sorted(one.called_at for one in callers.values())
        after = {rank: left[rank].number if rank in left else log.last + 1 for rank, log in logs.items()}
        for rank in members & dumps.keys() - logs.keys():  # it has called none, or its dump does not reach back to them
            is_absent = dumps[rank].first_at < called[0] and (number == 1 or dumps[rank].first_at > 0.0)
            after[rank] = number if is_absent else -1
        absent = frozenset(rank for rank, at in after.items() if at == number) - callers.keys()
        unread = (members | logs.keys()) - {rank for rank, at in after.items() if 0 <= at - number <= AHEAD}
        what = f"{callers[min(callers)].name} {number}"
        yield Wait(what, group, number, callers, absent, unread, (called[0], called[-1]), bool(members))


def _exchanges(
    group: str, members: frozenset[int], logs: Mapping[int, GroupLog], dumps: Mapping[int, RankDump]
) -> Iterator[Wait]:
    """Sends and receipts that wait for the other rank. Their numbers say nothing to that one."""
    by_number = dict(enumerate(sorted(members)))  # in a group, its ranks have numbers of their own
    calls = ((rank, one) for rank, log in logs.items() for one in log.operations)
    ends = ((rank, how, by_number.get(int(peer)), one) for rank, one in calls for how, peer in PEER.findall(one.name))
    last = {(rank, how, peer): one for rank, how, peer, one in ends if peer is not None}
    for (rank, how, peer), one in last.items():
        if not one.is_over:
            other = last.get((peer, OTHER[how], rank))  # a small send is finished before it is received
            is_called = other is not None and (not other.is_over or other.called_at > one.called_at)
            absent = frozenset(() if is_called else {peer} & dumps.keys())
            unread, called = frozenset({peer} - dumps.keys()), (one.called_at, one.called_at)
            yield Wait(one.name, group, one.number, {rank: one}, absent, unread, called)


# ---- which of them is the reason for the others ----------------------------------------------------------------------

Kind = Literal["ranks disagree", "never entered", "not finished", "no dump"]

LONG: Seconds = 10.0
"""How long before the dumps an operation was called in which ranks wait: those of a training that goes on are not all
written in one moment. torch writes them when an operation has taken minutes."""


Finding = tuple[Kind, Wait, tuple[int, ...]]
"""An operation in which ranks wait, and that is no consequence of another one; and the ranks that it is about."""


def judge(waits: Collection[Wait], began: Mapping[int, Instant]) -> list[Finding]:
    """What is wrong, the clearest first. Of several waits nothing is left if ranks wait for each other. `began`: since
    when each rank waits that does."""
    found = list[Finding]()
    for one in waits:
        kinds, own = one.kinds, one.absent - began.keys()
        if len(kinds) > 1:
            found.append(("ranks disagree", one, tuple(sorted([*kinds.values()][-1]))))
        elif own:
            found.append(("never entered", one, tuple(sorted(own))))
        elif (
            one.is_known and not one.absent and all(began[rank] >= each.called_at for rank, each in one.callers.items())
        ):
            # it is the first one in which these ranks wait: their GPUs have not come to the next ones
            found.append(("no dump" if one.unread else "not finished", one, tuple(sorted(one.unread or one.callers))))
    return sorted(found, key=lambda each: (get_args(Kind).index(each[0]), each[1].called[1]))


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
    every = [*waits_of(dumps, None if known is None else known.ranks)]
    calls = ((rank, each.called_at) for one in every for rank, each in one.callers.items())
    waits = [  # of those of a training that goes on, the dumps are too young
        one
        for one in every
        if all(dumps[rank].written_at - one.called[0] >= LONG for rank in one.absent | one.callers.keys())
    ]
    found = judge(waits, dict(sorted(calls, reverse=True)))
    kind, first, ranks = found[0] if found else (None, None, ())
    named = ranks if kind == "never entered" else ()
    missing = group_by(sorted(unread), lambda rank: unread[rank])
    lines = [
        *(_sentence(*one, known) for one in found[1:AT_MOST]),
        *(line for one in ([first] if first else waits[:AT_MOST]) for line in _calls(one, known)),
        *(_last_call(rank, dumps[rank], known) for rank in named[:AT_MOST]),
        *[f"no dump of {ranks_text(those, known)}: {why}" for why, those in missing.items()][:AT_MOST],
    ]
    nothing = "the ranks wait for each other" if waits else "no rank waits in an operation"
    return RankLook(
        source="flight-recorder",
        at=now,
        summary=clean(
            _sentence(*found[0], known)
            if found
            else f"{nothing}, according to {counted(len(dumps), 'dump')} of PyTorch",
            500,
        ),
        ranks=named,
        since=None if first is None else first.called[1],
        step=step,
        count=None if first is None else first.number,
        lines=tuple(clean(line, 300) for line in lines[:LINES]),
        advice="" if kind is None else ADVICE[kind],
    )


def _sentence(kind: Kind, wait: Wait, ranks: tuple[int, ...], known: RankMap | None) -> str:
    names, waiting, since = ranks_text(ranks, known), counted(len(wait.callers), "rank"), _clock(wait.called[1])
    waits, what = f"{waiting} wait{'s' * (len(wait.callers) == 1)} in", f"{wait.what} of {wait.group}"
    calls = ", ".join(f"{len(own)} call {name}" for name, own in wait.kinds.items())
    return {
        "ranks disagree": f"ranks disagree about {wait.number} of {wait.group}: {calls}: {names}",
        "never entered": f"{names} never entered {what}; {waits} it since {since}",
        "not finished": f"{waiting} entered {what}, and none of them has finished it since {since}: fabric or GPU",
        "no dump": f"{waits} {what} since {since}, and no dump shows whether {names} entered it",
    }[kind]


def _calls(one: Wait, known: RankMap | None) -> Iterator[str]:
    """From which lines it was called, and by whom; the rarest first."""
    by_call = group_by(sorted(one.callers), lambda rank: (one.callers[rank].name, one.callers[rank].line))
    for (name, line), ranks in sorted(by_call.items(), key=lambda each: len(each[1]))[:AT_MOST]:
        yield f"{name}{line}: {ranks_text(ranks, known)}"


def _last_call(rank: int, dump: RankDump, known: RankMap | None) -> str:
    calls = (
        (one.called_at, f"{one.name} {one.number} of group {log.title}{one.line}, {_clock(one.called_at)}, {how}")
        for log in dump.groups
        for one in log.operations
        for how in ["finished" if one.is_over else "not finished"]
    )
    return f"the last call of {ranks_text([rank], known)} was {max(calls, default=(0.0, 'none at all'))[1]}"


def _clock(at: Instant) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
