"""What the ranks of a run do, folded into groups, and which of them differ from all others. Pure.

A rank is named only if the others stand still and do one and the same: in a training that goes on, somebody is always
the last one. Rank 0, and who does the same, has work of its own, such as checkpoints: it is not named for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import basename
from typing import NamedTuple

import msgspec

from trainmon.analysis.attempts.ranks import ranks_text
from trainmon.lib import Instant, Seconds, duration, group_by, ranges, spans_text
from trainmon.model import LookSource, RankLook, RankMap

# ---- what one rank does ----------------------------------------------------------------------------------------------

BURNS, IDLES = 0.9, 0.02
"""Of one core: from here on its main thread never waits; up to here it does nothing but wait."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What /proc says of a process and its main thread. Times are CPU time since its start."""

    at: Seconds
    """By a clock of its node that never jumps."""
    state: str
    """R, S, D, T, t, as in proc(5)."""
    ran: Seconds
    process: Seconds
    """Of all its threads."""
    switches: int
    """How often it has waited for something."""
    cpus: str
    """The cores that it may use."""
    wchan: str
    """The function of the kernel in which it waits; empty if that is not readable."""
    call: str
    """The number of the system call; empty without the right to trace it."""
    kernel: str
    """The release of the kernel of its node, which has names of its own for where a process waits."""


class Activity(NamedTuple):
    """What a rank does, as seen several times."""

    kind: str
    """That of two ranks is equal if they do the same."""
    text: str
    """`wait{s} in …`, `{be} stopped`: with places for what one rank needs, or several."""
    is_still: bool
    """Whether nothing has changed from the first sample on."""
    detail: str = ""


HELD = {"T": "{be} stopped (state T)", "t": "{be} held by a debugger (state t)"}
BLOCKED = "blocked"
FACTS = (*HELD, BLOCKED)
"""The kinds that need no comparison with others."""

WAITS = re.compile(r"futex|poll|select|nanosleep|pipe|tty|$")
"""What the kernel's names of one and the same wait have in common, from one version to the next."""


def activities(read: Mapping[int, Sequence[Sample | None]]) -> dict[int, Activity]:
    """What each rank does that was there each time. Where they wait is compared by what says it of all of them, and not
    at all between kernels that name it differently."""
    whole = {
        rank: known for rank, samples in read.items() if len(known := [*filter(None, samples)]) == len(samples) > 2
    }
    waiting = [samples[-1] for samples in whole.values() if samples[-1].state == "S"]
    places = ("wchan", "call") if len({one.kernel for one in waiting}) == 1 else ()
    by = next((place for place in places if all(getattr(one, place) for one in waiting)), "state")
    return {rank: _activity(samples, by) for rank, samples in whole.items()}


def _activity(samples: Sequence[Sample], by: str) -> Activity:
    """What it does at the end: who only begins to wait like the others when the look begins is like them."""
    whole, end = _done(samples, by), _done(samples[len(samples) // 2 :], by)
    return end._replace(is_still=whole.is_still and whole.kind == end.kind, detail=whole.detail)


def _done(samples: Sequence[Sample], by: str) -> Activity:
    first, last = samples[0], samples[-1]
    seconds, ran, switches = last.at - first.at, last.ran - first.ran, last.switches - first.switches
    states, shown = "".join(sorted({one.state for one in samples})), re.sub(r"\W", "", last.wchan)
    places = {WAITS.search(place)[0] or place for place in (getattr(one, by) for one in samples)}  # type: ignore[index]
    where = f" in `{shown}`" if shown else f" in system call {last.call}" if last.call.isdigit() else ""
    kind, text, is_still = "works", "work{s}", False
    if states in HELD:
        kind, text, is_still = states, HELD[states], True
    elif states == "D" and len(places) == 1 and not switches:
        kind, text, is_still = BLOCKED, f"{{be}} blocked (state D){where}", True
    elif states == "R" and (not switches or ran >= BURNS * seconds):  # on a busy node, it waits for a core instead
        kind, text, is_still = "burns", "burn{s} a core", True
    elif states == "S" and len(places) == 1 and ran <= IDLES * seconds:
        kind, text, is_still = f"waits {places}", f"wait{{s}}{where}", not switches
    others = max(0.0, last.process - first.process - ran)
    detail = (
        f"main thread {ran / seconds:.2f} of a core, its other threads {others / seconds:.2f}; "
        f"{switches} waits in {duration(seconds)}; CPUs {re.sub('[^0-9,-]', '', last.cpus)}"
    )
    return Activity(kind, text, is_still, detail)


# ---- what all ranks do → who differs ---------------------------------------------------------------------------------

MAJORITY = 3 / 4
"""Of all ranks of the run, with those that were not read. In a pipeline, each stage does something else."""

LISTED = 3
"""Groups in the summary."""


def judged(
    source: LookSource,
    known: RankMap,
    doing: Mapping[int, Activity],
    at: Instant,
    *,
    pids: Mapping[int, int],
    unread: Sequence[str] = (),
    calm: str = "",
) -> RankLook:
    """Who differs. `unread`: what was not read, and why; `calm`: why nobody is named who only does something else."""
    groups = sorted(group_by(sorted(doing), lambda rank: doing[rank].kind).values(), key=len, reverse=True)
    named = [ranks for ranks in groups if _is_named(ranks, groups, doing, known.ranks, is_calm=bool(calm))]
    shares = [f"{len(ranks)} of {known.ranks} ranks {_does(ranks, doing)}" for ranks in groups if ranks not in named]
    odd = [
        f"{ranks_text(ranks, known)} {_does(ranks, doing)}"
        + (": differ" + "s" * (len(ranks) == 1)) * (doing[ranks[0]].kind not in FACTS)
        for ranks in named
    ]
    why = calm or "fewer than three quarters of them are stuck in the same place"
    if len(groups) < 2:
        why = "none differs" if groups else "none could be read"
    elif len(groups) == 2 and 0 in groups[1] and not calm:
        why = "rank 0 is among those that differ, and has work of its own"
    text = "; ".join((*shares[:LISTED], *(odd or [f"no rank is named: {why}"])))
    ranks = sorted(rank for ranks in named for rank in ranks)
    stopped = [rank for rank in ranks if doing[rank].kind == "T"]
    advice = ""
    if stopped:
        advice = f"if nobody has stopped it on purpose, `kill -CONT {pids[stopped[0]]}` on its node continues it"
    elif ranks and source == "proc":
        advice = "read its stack: `trainmon-tui stacks`, or x in the dashboard"
    return RankLook(
        source=source,
        at=at,
        summary=f"{text}, {len(doing)} of {known.ranks} read",
        ranks=tuple(ranks),
        advice=advice,
        lines=(
            *(_line(own, doing) for own in groups),
            *(f"{ranks_text([rank], known)}: pid {pids[rank]}" for rank in ranks),
            *unread,
        ),
    )


def _is_named(
    ranks: Sequence[int], groups: Sequence[Sequence[int]], doing: Mapping[int, Activity], world: int, *, is_calm: bool
) -> bool:
    """Whether those of a group are named."""
    kind = doing[ranks[0]].kind
    if kind in FACTS and not any(doing[rank].is_still for rank in ranks):
        return False
    if kind in HELD:
        return 2 * len(ranks) <= world
    is_standing = any(
        sum(doing[rank].is_still for rank in others) >= MAJORITY * world
        for others in groups
        if others != ranks and doing[others[0]].kind not in FACTS
    )
    is_few = len(ranks) <= (1 - MAJORITY) * world
    return is_few and not is_calm and (is_standing or kind == BLOCKED) and 0 not in ranks


def _does(ranks: Sequence[int], doing: Mapping[int, Activity]) -> str:
    is_one = len(ranks) == 1
    return doing[ranks[0]].text.format(s="s" if is_one else "", be="is" if is_one else "are")


def _line(ranks: Sequence[int], doing: Mapping[int, Activity]) -> str:
    """What a group does, with the details of its first rank."""
    many = len(ranks) > 1
    of_first = f"rank {ranks[0]}: " if many else ""
    return f"rank{'s' * many} {spans_text(ranges(ranks))} {_does(ranks, doing)} ({of_first}{doing[ranks[0]].detail})"


# ---- where the code of a rank stands, by its stacks ------------------------------------------------------------------

Frame = tuple[str, int, str]
"""A file, a line in it, and the function."""

LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<")


def standing(stacks: Sequence[Sequence[Frame]], moves: Activity) -> Activity:
    """Where it stands. `stacks`: each from the outermost frame on; `moves`: what /proc has shown of it meanwhile.

    Two ranks stand alike if all functions are the same from the outermost frame of the trainer on, and the line of its
    innermost one. A loop that waits has no such line: it differs from stack to stack."""
    chains = [_chain(stack) for stack in stacks]
    names = [*dict.fromkeys(tuple(name for name, _ in chain) for chain in chains)]
    if len(names) > 1 or not names[0]:
        return moves._replace(kind="runs", text="run{s} on", is_still=False)
    inner = max((at for at, (_, line) in enumerate(chains[0]) if line), default=0)
    lines = {chain[inner][1] for chain in chains}
    at = f", line {min(lines)}" if len(lines) == 1 and min(lines) else ""
    shown = " > ".join(dict.fromkeys((names[0][0], names[0][inner], names[0][-1])))
    detail = f"{' > '.join(names[0])}; {moves.detail}"
    return Activity(f"{names[0]}{at}", f"stand{{s}} in `{shown}`{at}", moves.is_still, detail)


def _chain(stack: Sequence[Frame]) -> list[tuple[str, int]]:
    """From the outermost frame of the trainer on: module and function, and the line where it is of the trainer. Of a
    method, py-spy names the class, too, and faulthandler does not."""
    known = [(re.sub(r"[^\w.:<>-]", "", f"{basename(file).removesuffix('.py')}:{function.rpartition('.')[2]}"),
              0 if LIBRARY.search(file) else line) for file, line, function in stack]  # fmt: skip
    return known[next((at for at, (_, line) in enumerate(known) if line), 0) :]
