"""What the ranks of a run do, folded into groups, and which of them differ from all others. Pure.

A rank is named only if the others stand still and do one and the same: in a training that goes on, somebody is always
the last one. Rank 0, and who does the same, has work of its own, such as checkpoints: it is not named for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from trainmon.analysis.attempts.ranks import place_of
from trainmon.lib import Instant, Seconds, duration, group_by, listed, ranges, spans_text
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
    kernel: Seconds
    """Of `ran`: in the kernel."""
    process: Seconds
    """Of all its threads."""
    workers: Seconds
    """Of the processes below it."""
    switches: int
    """How often it has waited for something."""
    cpus: str
    """The cores that it may use."""
    threads: int
    wchan: str
    """The function of the kernel in which it waits; empty if that is not readable."""
    call: str
    """The number of the system call; empty without the right to trace it."""
    idle: Seconds | None
    """For how long it has not run."""


class Activity(NamedTuple):
    """What a rank does, as seen several times."""

    kind: str
    """That of two ranks is equal if they do the same."""
    text: str
    """`wait{s} in …`, `{be} stopped`: with places for what one rank needs, or several."""
    is_still: bool
    """Whether nothing has changed meanwhile."""
    detail: str = ""
    since: Seconds | None = None
    """For how long it has been so, at least."""


FACTS = STOPPED, TRACED, BLOCKED = "stopped", "traced", "blocked"
"""The kinds that need no comparison with others."""

WAITS = re.compile(r"futex|poll|select|nanosleep|pipe|tty|$")
"""What the kernel's names of one and the same wait have in common, from one version to the next."""

Place = Literal["wchan", "call", "state"]


def activities(read: Mapping[int, Sequence[Sample | None]]) -> dict[int, Activity]:
    """What each rank does that was there each time. Where they wait is compared by what says it of all of them."""
    whole = {
        rank: known for rank, samples in read.items() if len(known := [*filter(None, samples)]) == len(samples) > 1
    }
    waiting = [samples[-1] for samples in whole.values() if samples[-1].state == "S"]
    places: tuple[Place, ...] = ("wchan", "call", "state")
    by = next(place for place in places if all(getattr(one, place) for one in waiting))
    return {rank: _activity(samples, by) for rank, samples in whole.items()}


def _activity(samples: Sequence[Sample], by: Place) -> Activity:
    first, last = samples[0], samples[-1]
    seconds, ran, switches = last.at - first.at, last.ran - first.ran, last.switches - first.switches
    states, shown = "".join(sorted({one.state for one in samples})), re.sub(r"\W", "", last.wchan)
    places = {WAITS.search(place)[0] or place for place in (getattr(one, by) for one in samples)}  # type: ignore[index]
    where = f" in `{shown}`" if shown else f" in system call {last.call}" if last.call.isdigit() else ""
    kind, text, is_still = "works", f"work{{s}} with {ran / seconds:.0%} of a core", False
    if states == "T":
        kind, text, is_still = STOPPED, "{be} stopped (state T)", True
    elif states == "t":
        kind, text, is_still = TRACED, "{be} held by a debugger (state t)", True
    elif states == "D" and len(places) == 1 and not switches:
        kind, text, is_still = BLOCKED, f"{{be}} blocked (state D){where}", True
    elif states == "R" and (not switches or ran >= BURNS * seconds):  # on a busy node, it waits for a core instead
        kind = "the kernel" if last.kernel - first.kernel > ran / 2 else "user space"
        text, is_still = f"burn{{s}} a core in {kind}", True
    elif states == "S" and len(places) == 1 and ran <= IDLES * seconds:
        kind, text, is_still = f"waits {places}", f"wait{{s}}{where}", not switches
    shares = ((last.process - first.process - ran) / seconds, (last.workers - first.workers) / seconds)
    others, workers = (f"{max(0.0, share):.2f}" for share in shares)
    detail = (
        f"main thread {ran / seconds:.2f} of a core, its other threads {others}, its workers {workers}; "
        f"{switches} waits in {duration(seconds)}; {last.threads} threads; CPUs {re.sub('[^0-9,-]', '', last.cpus)}"
    )
    return Activity(kind, text, is_still, detail, last.idle if last.idle and last.idle >= seconds else None)


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
    named = [rank for ranks in groups for rank in _named(ranks, groups, doing, known.ranks, is_calm=bool(calm))]
    shares, odd = list[str](), list[str]()
    for ranks in groups:
        first, own = doing[ranks[0]], [rank for rank in ranks if rank in named]
        if len(ranks) > len(own):
            shares.append(f"{len(ranks) - len(own)} of {known.ranks} ranks {_says(first, len(ranks) - len(own))}")
        if own:
            places = listed([_name(rank, known) for rank in own])
            odd.append(
                f"{places} {_says(first, len(own))}{'' if first.kind in FACTS else ': differ' + 's' * (len(own) == 1)}"
            )
    why = calm or "fewer than three quarters of them stand still alike"
    if len(groups) < 2:
        why = "none differs" if groups else "none could be read"
    elif len(groups) == 2 and 0 in groups[1] and not calm:
        why = "rank 0 is among those that differ, and has work of its own"
    text = "; ".join((*shares[:LISTED], *(odd or [f"no rank is named: {why}"])))
    advice = "read where its code stands: `trainmon-tui stacks`, or x in the dashboard" if named else ""
    if stopped := [rank for rank in named if doing[rank].kind == STOPPED]:
        advice = f"if nobody has stopped it on purpose, `kill -CONT {pids[stopped[0]]}` on its node continues it"
    since = min((doing[rank].since or 0.0 for rank in named), default=0.0)
    return RankLook(
        source=source,
        at=at,
        summary=f"{text}, {len(doing)} of {known.ranks} read",
        ranks=tuple(sorted(named)),
        since=at - since if since else None,
        advice=advice if source == "proc" or stopped else "",
        lines=(*_lines(groups, doing), *(f"{_name(one, known)}: pid {pids[one]}" for one in sorted(named)), *unread),
    )


def _named(
    ranks: Sequence[int], groups: Sequence[Sequence[int]], doing: Mapping[int, Activity], world: int, *, is_calm: bool
) -> list[int]:
    """Those of a group who are named: all, or nobody."""
    kind = doing[ranks[0]].kind
    if kind in (STOPPED, TRACED):
        return [*ranks] if 2 * len(ranks) <= world else []
    is_standing = any(
        len(others) >= MAJORITY * world and all(doing[rank].is_still for rank in others)
        for others in groups
        if others != ranks and doing[others[0]].kind not in FACTS
    )
    is_few = len(ranks) <= (1 - MAJORITY) * world
    is_proof = is_few and not is_calm and (is_standing or kind == BLOCKED)
    return [*ranks] if is_proof and 0 not in ranks else []


def _says(one: Activity, ranks: int) -> str:
    return one.text.format(s="s" if ranks == 1 else "", be="is" if ranks == 1 else "are")


def _name(rank: int, known: RankMap) -> str:
    return str(place_of(rank, known) or f"rank {rank}")


def _lines(groups: Sequence[Sequence[int]], doing: Mapping[int, Activity]) -> Iterator[str]:
    """What each group does, with the details of its first rank."""
    for ranks in groups:
        first, many = doing[ranks[0]], len(ranks)
        of_first = f"rank {ranks[0]}: " if many > 1 else ""
        yield f"rank{'s' * (many > 1)} {spans_text(ranges(ranks))} {_says(first, many)} ({of_first}{first.detail})"
