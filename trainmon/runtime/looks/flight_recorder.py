"""Reads the dumps of PyTorch's flight recorder where the ranks of a run have written them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trainmon.analysis.attempts import rank_processes
from trainmon.analysis.attempts.looks.flight_recorder import (
    RankDump,
    look_of,
    of_another,
    read_when,
    written_since,
)
from trainmon.analysis.runs import last_attempts
from trainmon.lib import CommandFailed, Instant, Seconds, TrainmonError, counted
from trainmon.model import Attempt, LookReply, LookSource, RankLook, RankMap, Run, State
from trainmon.runtime.looks.nodes import Request

READ_FOR: Seconds = 30.0
"""How long a node reads dumps. One of 2,000 entries takes 0.03 s, and one that is being written may take seconds."""
SLACK: Seconds = 15.0

TRIES, TRY_EVERY = 3, 20.0
"""How often dumps are looked for, and the seconds between: they may come late."""
KEPT = 8
"""Attempts of which that is remembered. The dumps of 512 ranks take about 10 MB."""

HINT = "set TORCH_NCCL_DUMP_ON_TIMEOUT=1: then each rank writes one when an operation has timed out"


class Answer(msgspec.Struct, frozen=True):
    """What a node has."""

    dumps: dict[int, RankDump]
    bad: dict[int, str]
    """By rank: why its dump is not read."""
    paths: tuple[str, ...]
    """Where the ranks write them, without the rank."""


class FlightRecorder:
    """Remembers of an attempt where its ranks write their dumps, which is not known any more when they have ended, and
    the dumps that were there: a node may be cleaned up before the others."""

    def __init__(self) -> None:
        self._paths: dict[str, set[str]] = {}
        self._dumps: dict[str, dict[int, RankDump]] = {}

    def look(self, request: Request) -> RankLook:
        """What the dumps of the newest attempt of a run show.

        Raises:
            CommandFailed: when there are none.
        """
        run, attempt = request.run, last_attempts(request.state.attempts.values()).get(request.run.name)
        nodes = () if attempt is None else attempt.nodes or _host_of(run)
        if attempt is None or not nodes:
            raise CommandFailed(f"on which nodes {run.name} runs is not known")
        known = None if attempt.ranks is None or attempt.ranks.is_ambiguous else attempt.ranks
        request.say(f"reading the dumps of PyTorch on {counted(len(nodes), 'node')}")
        dumps, unread, now = dict[int, RankDump](), dict[int, str](), request.clock.now()
        for node, answer in self._answers(request, attempt, nodes, known).items():
            if isinstance(answer, Answer):
                unread |= answer.bad
                for rank, dump in answer.dumps.items():
                    if not dumps.setdefault(rank, dump).is_same(dump):  # it is none on a shared disk
                        unread[rank] = "two nodes have different ones"
                    elif why := of_another(rank, dump, attempt, now):
                        unread[rank] = why
            else:
                unread |= dict.fromkeys(known.nodes.get(node, ()) if known is not None else (), answer)
        before, since = self._dumps.pop(attempt.attempt_id, {}), written_since(attempt, run.progress.at)
        dumps = {rank: one for rank, one in dumps.items() if rank not in unread}
        dumps = {**{rank: one for rank, one in before.items() if one.written_at >= since}, **dumps}
        unread = {rank: why for rank, why in unread.items() if rank not in dumps}
        self._dumps[attempt.attempt_id] = dumps
        for kept in (self._dumps, self._paths):
            for name in [*kept][:-KEPT]:
                kept.pop(name, None)
        if not dumps:
            why = "".join(f": {why}" for why in [*unread.values()][:1])
            raise CommandFailed(f"no rank of {run.name} has a dump of PyTorch's flight recorder{why}", hint=HINT)
        everybody = {rank for own in known.nodes.values() for rank in own} if known is not None else set()
        unread = {**dict.fromkeys(everybody - dumps.keys(), "it has written none"), **unread}
        return look_of(dumps, unread, known, run.progress.step, now)

    def _answers(
        self, request: Request, attempt: Attempt, nodes: tuple[str, ...], known: RankMap | None
    ) -> dict[str, Answer | str]:
        processes, paths = rank_processes(request.run, request.state), self._paths.setdefault(attempt.attempt_id, set())
        asked = {
            node: {
                "pids": [one.pid for one in processes.get(node, {}).values()],
                "ranks": None if known is None else [*known.nodes.get(node, ())],
                "paths": sorted(paths),
                "since": written_since(attempt, request.run.progress.at),
                "ahead": 0.0 if (seen := request.state.nodes.get(node)) is None else seen.clock_skew_s or 0.0,
                "seconds": READ_FOR,
            }
            for node in nodes
        }
        found = dict[str, Answer | str]()
        for node, answer in request.nodes.ask_each(asked, "flight_recorder", READ_FOR + SLACK).items():
            try:
                found[node] = one = msgspec.convert(answer, Answer, str_keys=True)
                paths.update(one.paths)
            except msgspec.ValidationError as error:
                found[node] = answer.message if isinstance(answer, TrainmonError) else str(error)
        return found


def _host_of(run: Run) -> tuple[str, ...]:
    """Where its log is, if nothing says on which nodes it runs."""
    return () if run.log is None else (run.log.host,)


class DumpReader:
    """Has the dumps of an attempt read when an operation times out and when it ends; AutomaticLooks, while it hangs."""

    def __init__(self, ask: Callable[[str, Sequence[LookSource], Callable[[LookReply], object]], None]) -> None:
        self._ask = ask
        self._tried: dict[tuple[str, str], list[Instant]] = {}

    def observe(self, state: State) -> None:
        """On the engine's thread; never waits. Of several programs, the one that writes attempts to the ledger asks."""
        if state.leadership.holder not in ("us", "daemon") or not state.attempts:
            return
        for one in last_attempts(state.attempts.values()).values():
            if why := read_when(one, state.runs.get(one.run_id), state.at):
                tried = self._tried.setdefault((one.attempt_id, why), [])
                is_read = any(look.source == "flight-recorder" and look.at >= tried[0] for look in one.looks if tried)
                if not is_read and len(tried) < TRIES and state.at - max(tried, default=0.0) >= TRY_EVERY:
                    tried.append(state.at)
                    self._ask(one.run_id, ("flight-recorder",), lambda reply: None)
