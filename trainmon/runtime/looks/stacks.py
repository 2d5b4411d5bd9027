"""Where the code of the ranks of a run stands, on request: by py-spy, or by a signal to trainmon_hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from trainmon.analysis.attempts.looks import FACTS, Frame, judged, standing
from trainmon.analysis.runs import last_attempts
from trainmon.lib import Clock, Seconds, group_by
from trainmon.model import RankWay, RunLooked, State
from trainmon.runtime.looks.nodes import Nodes
from trainmon.runtime.looks.proc import by_rank, calm, ranks_of, see

PAUSES: tuple[Seconds, ...] = (0.0, 2.7, 3.3)
"""Before each stack: in a training that goes on, one of three shows that a rank moves."""

FIND_TIMEOUT: Seconds = 8.0
TIMEOUT: Seconds = 75.0


Row = tuple[int, Literal["py-spy", "signal", ""], str, list[list[Frame]]]
"""What a node says of a rank: how it can be asked, or why it cannot, and its stacks."""


class Stacks:
    """Finds and reads the stacks of ranks. A look by /proc comes first: what only stands elsewhere is no proof."""

    def __init__(
        self, state: Callable[[], State], nodes: Nodes, submit: Callable[[RunLooked], None], clock: Clock
    ) -> None:
        self._state, self._nodes, self._submit, self._clock = state, nodes, submit, clock

    def find(self, run: str) -> tuple[RankWay, ...]:
        """How the stack of each rank of a run can be read.

        Raises:
            CommandFailed: when its ranks are not known.
        """
        _, processes = ranks_of(run, self._state())
        ranks = [RankWay(rank=rank, node=node, pid=one.pid, started_s=one.started_s)
                 for node, own in processes.items() for rank, one in own.items()]  # fmt: skip
        rows, unread = self._ask(ranks, (), FIND_TIMEOUT)
        known = {rank: {"way": way, "why": why} for rank, way, why, _ in rows}
        return tuple(replace(one, **known.get(one.rank, {"why": "; ".join(unread)})) for one in ranks)

    def read(self, run: str, ranks: Sequence[RankWay]) -> str:
        """Read /proc, then the stacks, and submit the look; its summary.

        Raises:
            CommandFailed: when the ranks of the run are not known any more.
        """
        state = self._state()
        seen = see(run, state, self._nodes)
        rows, unread = self._ask(ranks, PAUSES, TIMEOUT)
        stood = {rank: standing(stacks, seen.doing[rank]) for rank, _, _, stacks in rows
                 if len(stacks) == len(PAUSES) and rank in seen.doing}  # fmt: skip
        others = {rank: one for rank, one in seen.doing.items() if one.kind in FACTS or not stood}
        whys = (f"no stack of rank {rank}: {why or 'it can no longer be asked as planned'}" for rank, _, why, _ in rows
                if rank not in stood)  # fmt: skip
        unread, now = [*seen.unread, *unread, *whys], self._clock.now()
        why = calm(self._state().runs.get(run, state.runs[run]), now)
        look = judged("stacks", seen.known, stood | others, now, pids=seen.pids, unread=unread, calm=why)
        self._submit(RunLooked(run, look, last_attempts(state.attempts.values())[run].attempt_id))
        return look.summary

    def _ask(
        self, ranks: Sequence[RankWay], pauses: Sequence[Seconds], timeout: Seconds
    ) -> tuple[list[Row], list[str]]:
        nodes = group_by(ranks, lambda one: one.node)
        asked = {
            node: (pauses, [(one.rank, one.pid, one.started_s, one.way) for one in ones])
            for node, ones in nodes.items()
        }
        return by_rank(self._nodes.ask_each(asked, "stacks", timeout), nodes, list[Row])
