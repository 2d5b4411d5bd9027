"""What all ranks do, from /proc of every node of the run. Needs no privilege, and touches no process."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any, NamedTuple, TypeVar

import msgspec

from trainmon.analysis.attempts import rank_processes
from trainmon.analysis.attempts.looks import Activity, Sample, activities, judged
from trainmon.analysis.runs import last_attempts
from trainmon.lib import CommandFailed, Instant, Seconds, TrainmonError, counted, duration
from trainmon.model import SILENT, RankLook, RankMap, RankProcess, Run, State, verdict_text
from trainmon.runtime.looks.nodes import Nodes, Request

Row = TypeVar("Row")

PAUSES: tuple[Seconds, ...] = (0.0, 0.7, 1.3, 0.9, 1.2, 1.1)
"""Before each sample: unequal, so that the rhythm of a training never looks like a standstill."""

TIMEOUT: Seconds = 30.0
"""256 ranks take 0.1 s of a core, in addition to the pauses. At the lowest priority, that can last on a busy node."""

LATE = 3
"""A run is late when none has come in the time of so many steps."""


class Seen(NamedTuple):
    """What was read of the ranks of a run."""

    known: RankMap
    pids: Mapping[int, int]
    doing: dict[int, Activity]
    """By rank."""
    unread: list[str]
    """What was not read, and why."""


def look(request: Request) -> RankLook:
    """What each rank does, and who differs.

    Raises:
        CommandFailed: when the ranks of the run are not known.
    """
    request.say(f"reading /proc of its nodes for {duration(sum(PAUSES))}")
    seen, now = see(request.run.name, request.state, request.nodes), request.clock.now()
    why = calm(request.latest().runs.get(request.run.name, request.run), now)
    return judged("proc", seen.known, seen.doing, now, pids=seen.pids, unread=seen.unread, calm=why)


def see(run: str, state: State, nodes: Nodes) -> Seen:
    """Read /proc of all nodes of a run.

    Raises:
        CommandFailed: when its ranks are not known.
    """
    known, processes = ranks_of(run, state)
    asked = {
        node: (PAUSES, [(rank, one.pid, one.started_s) for rank, one in own.items()]) for node, own in processes.items()
    }
    answers = nodes.ask_each(asked, "proc", TIMEOUT)
    read, unread = by_rank(answers, processes, list[tuple[int, list[Sample | None]]])
    doing, pids = activities(dict(read)), {rank: one.pid for own in processes.values() for rank, one in own.items()}
    unread += [f"rank {rank}: its process has ended, or is hidden" for rank, _ in read if rank not in doing]
    return Seen(known, pids, doing, unread)


def ranks_of(name: str, state: State) -> tuple[RankMap, dict[str, dict[int, RankProcess]]]:
    """The map of the ranks of a run, and their processes by node and rank.

    Raises:
        CommandFailed: when they are not known.
    """
    attempt, run = last_attempts(state.attempts.values()).get(name), state.runs.get(name)
    processes = {} if run is None else rank_processes(run, state)
    if attempt is None or attempt.ranks is None or not any(processes.values()):
        raise CommandFailed(f"which processes are the ranks of {name} is not known", hint="its page shows why")
    return attempt.ranks, {node: own for node, own in processes.items() if own}


def by_rank(
    answers: Mapping[str, Any | TrainmonError], processes: Mapping[str, Sized], rows: type[list[Row]]
) -> tuple[list[Row], list[str]]:
    """What all nodes have answered, and which of them have not, with the reason."""
    found, unread = list[Row](), list[str]()
    for node, answer in answers.items():
        try:
            if isinstance(answer, TrainmonError):
                raise answer
            found += msgspec.convert(answer, rows)
        except (TrainmonError, msgspec.ValidationError) as error:
            unread.append(f"{counted(len(processes[node]), 'rank')} on {node}: {error}")
    return found, unread


def calm(run: Run, now: Instant) -> str:
    """Why nobody is to be named yet: the run makes its steps in time or does something else, or nobody knows that."""
    if run.verdict in SILENT:
        return ""
    if run.verdict in ("starting", "evaluating", "saving"):
        return f"it is {verdict_text(run.verdict)}"
    at, cadence = run.progress.at, run.progress.cadence_s
    if run.verdict == "unknown" or at is None or cadence is None:
        return "it is not known whether the run makes its steps"
    if now - at > LATE * cadence:
        return ""
    return f"its last step came {duration(max(0.0, now - at))} ago, usually one comes every {duration(cadence)}"
