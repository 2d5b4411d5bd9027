"""Reads the dumps of PyTorch's flight recorder where the ranks of a run have written them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trainmon.analysis.attempts import rank_processes
from trainmon.analysis.attempts.looks.flight_recorder import (
    RankDump,
    is_due,
    look_of,
    of_another,
    rivals,
    written_since,
)
from trainmon.analysis.runs import last_attempts, skew_of
from trainmon.lib import CommandFailed, Instant, Seconds, TrainmonError, counted
from trainmon.lib.threads import decoder
from trainmon.model import LookReply, LookSource, RankLook, State
from trainmon.runtime.looks.nodes import Request

READ_FOR: Seconds = 30.0
"""How long a node reads dumps. One of 2,000 entries takes 0.03 s, and one that is being written may take seconds."""
SLACK: Seconds = 15.0

TRIES, TRY_EVERY = 3, 20.0
"""How often dumps are looked for, and the seconds between: they may come late."""
KEPT = 16
"""Attempts of which that is remembered. The dumps of 512 ranks take about 10 MB."""

Answer = tuple[dict[int, RankDump | str | None], list[str]]
"""What a node has: by rank its dump, why it is not read, or None if it is not complete; and where the ranks write them,
without the rank."""


class FlightRecorder:
    """Remembers of an attempt where its ranks write their dumps, which is not known any more when they have ended, and
    the dumps that were there: a node may be cleaned up before the others."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[frozenset[str], dict[int, RankDump]]] = {}

    def look(self, request: Request) -> RankLook:
        """What the dumps of the newest attempt of a run show.

        Raises:
            CommandFailed: when there are none.
        """
        run, state, now = request.run, request.state, request.clock.now()
        attempt = last_attempts(state.attempts.values()).get(run.name)
        if attempt is None or not (nodes := attempt.nodes or (() if run.log is None else (run.log.host,))):
            raise CommandFailed(f"on which nodes {run.name} runs is not known")
        known = None if attempt.ranks is None or attempt.ranks.is_ambiguous else attempt.ranks
        request.say(f"reading the dumps of PyTorch on {counted(len(nodes), 'node')}")
        processes = rank_processes(run, state)
        starts = [
            (seen.boot_time or 0.0) + one.started_s - skew_of(name, state.nodes)
            for name, ranks in processes.items()
            if (seen := state.nodes.get(name)) is not None
            for one in ranks.values()
        ]
        since = written_since(attempt, run.progress.at, min(starts, default=None))
        paths, before = self._kept.pop(attempt.attempt_id, (frozenset[str](), dict[int, RankDump]()))
        asked = {
            node: {
                "pids": [one.pid for one in processes.get(node, {}).values()],
                "ranks": None if known is None else [*known.nodes.get(node, ())],
                "paths": sorted(paths),
                "since": since,
                "ahead": skew_of(node, state.nodes),
                "seconds": READ_FOR,
            }
            for node in nodes
        }
        dumps, unread, others = dict[int, RankDump](), dict[int, str](), rivals(attempt, state, since)
        decoder(RankDump)  # other runs are looked at on other threads
        for node, answer in request.nodes.ask_each(asked, "flight_recorder", READ_FOR + SLACK).items():
            try:
                own, places = msgspec.convert(answer, Answer, str_keys=True)
            except msgspec.ValidationError as error:
                why = answer.message if isinstance(answer, TrainmonError) else str(error)
                own, places = dict.fromkeys(known.nodes.get(node, ()) if known is not None else (), why), []
            paths = paths.union(places)
            for rank, dump in own.items():
                if not isinstance(dump, RankDump):
                    unread[rank] = dump or "it is not complete"
                elif why := of_another(rank, dump, attempt, now, node, others):
                    unread[rank] = why
                elif identity(dumps.setdefault(rank, dump)) != identity(dump):
                    unread[rank] = "two nodes have different ones"
        dumps = {rank: one for rank, one in before.items() if one.written_at >= since} | {
            rank: one for rank, one in dumps.items() if rank not in unread
        }
        self._kept[attempt.attempt_id] = paths, dumps
        for name in [*self._kept][:-KEPT]:  # other runs are looked at on other threads
            self._kept.pop(name, None)
        if not dumps:
            why = "".join(f": {why}" for why in [*unread.values()][:1])
            raise CommandFailed(
                f"no rank of {run.name} has a dump of PyTorch's flight recorder{why}",
                hint="set TORCH_NCCL_DUMP_ON_TIMEOUT=1: then each rank writes one when an operation has timed out",
            )
        everybody = [rank for own in known.nodes.values() for rank in own] if known is not None else []
        missing = {rank: unread.get(rank, "it has written none") for rank in {*everybody, *unread} - dumps.keys()}
        return look_of(dumps, missing, known, run.progress.step, now)


def identity(dump: RankDump) -> tuple[str, float]:
    """The same for one file, whichever node has read it: their clocks differ."""
    return dump.path, round(dump.written_at - dump.last_at, 2)


class DumpReader:
    """Has the dumps of an attempt read when an operation times out and when it ends; AutomaticLooks, while it hangs."""

    def __init__(self, ask: Callable[[str, Callable[[LookReply], object], Sequence[LookSource]], None]) -> None:
        self._ask = ask
        self._tried: dict[tuple[str, bool], list[Instant]] = {}
        """By attempt, and whether it had ended: when it was asked for."""

    def observe(self, state: State) -> None:
        """On the engine's thread; never waits. Of several programs, the one that writes attempts to the ledger asks."""
        if state.leadership.holder not in ("us", "daemon"):
            return
        self._tried = {key: tried for key, tried in self._tried.items() if key[0] in state.attempts}
        for one in last_attempts(state.attempts.values()).values():
            if is_due(one, state.runs.get(one.run_id), state.at):
                tried = self._tried.setdefault((one.attempt_id, one.told_end is not None), [])
                is_read = any(look.source == "flight-recorder" and look.at >= tried[0] for look in one.looks if tried)
                if not is_read and len(tried) < TRIES and state.at - max(tried, default=0.0) >= TRY_EVERY:
                    tried.append(state.at)
                    self._ask(one.run_id, lambda reply: None, ("flight-recorder",))
