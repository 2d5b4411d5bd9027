"""What NCCL would say of the ranks of a simulated run: of one that hangs, one rank stays behind. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainmon.analysis.attempts import rank_processes
from trainmon.analysis.attempts.looks import Answer, Circumstances, Communicator, Process, call, placed
from trainmon.analysis.runs import last_attempts
from trainmon.lib import CommandFailed, Instant, Seconds
from trainmon.model import SILENT, RankLook, RankProcess, Run, State

APART: Seconds = 15.0
OPERATIONS = 13
"""Operations of each step."""


def roll_call(run: Run, state: State, now: Instant) -> RankLook:
    """Two answers of the ranks of a run, judged as those of a real one.

    Raises:
        CommandFailed: when no process of it runs.
    """
    processes, attempt = rank_processes(run, state), last_attempts(state.attempts.values()).get(run.name)
    if not processes or attempt is None or attempt.ranks is None:
        raise CommandFailed("the processes of its ranks are not known: no node of it that is read shows them")
    is_silent = run.verdict in SILENT
    first, second = (
        answer(processes, OPERATIONS * (run.step or 0) + n, is_silent) for n in (0, 0 if is_silent else 40)
    )
    circumstances = Circumstances(
        now - APART, now, attempt.ranks, placed(second, processes, attempt.ranks.ranks),
        is_late=is_silent, step=run.step, before=next(iter(run.looks), None),
    )  # fmt: skip
    return call(first, second, circumstances)


def answer(processes: Mapping[str, Mapping[int, RankProcess]], count: int, is_stuck: bool) -> Answer:
    """Of a rank in the last third, the host has not launched what the others have. The hosts have their names here."""
    ranks = {
        rank: Process(node, one.pid, str(rank % 8)) for node, own in processes.items() for rank, one in own.items()
    }
    late = frozenset({ranks[sorted(ranks)[len(ranks) * 3 // 4]]}) if is_stuck else frozenset()
    others = frozenset(ranks.values()) - late
    sides = {count + 1: others, **({count: late} if late else {})}
    world = Communicator(len(ranks), {"AllReduce": sides})
    return Answer("2.28.9", {"0x8f4b3d0c21a9e657": world}, frozenset(one[:2] for one in ranks.values()))
