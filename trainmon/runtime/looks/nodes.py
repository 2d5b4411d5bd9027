"""Looks that read nodes: what all ranks do, from /proc, and on request their stacks. Neither needs a privilege.

A script is run there over the connections that are open, two at a time on each node.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cache
from pathlib import Path
from threading import Semaphore
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import rank_processes, why_no_ranks
from trainmon.analysis.attempts.looks.activity import FACTS, Activity, Frame, Sample, activities, judged, standing
from trainmon.analysis.runs import last_attempts
from trainmon.lib import (
    Clock,
    CommandFailed,
    Instant,
    Seconds,
    TrainmonError,
    ago,
    counted,
    duration,
    group_by,
    last_line,
)
from trainmon.lib.threads import decoder
from trainmon.model import SILENT, RankLook, RankMap, RankProcess, RankWay, Run, RunLooked, State, verdict_text
from trainmon.runtime.looks.on_node.run import BEGIN
from trainmon.transport.shell import Shell

SCRIPTS = Path(__file__).parent / "on_node"

ANSWER_BYTES = 32 * 1024 * 1024
"""The longest answer of a script, unpacked."""

AT_ONCE = 16
"""Nodes that are looked at at the same time."""


class Nodes:
    """What a source of looks may use. `shell_of` gives the open connection of a host, `python_of` the name of its
    interpreter; both may raise TrainmonError. `wait` waits for seconds."""

    def __init__(
        self,
        shell_of: Callable[[str], Shell],
        python_of: Callable[[str], str] = lambda host: "python3",
        wait: Callable[[Seconds], object] = time.sleep,
    ) -> None:
        self.shell_of, self._python_of, self.wait = shell_of, python_of, wait
        self._turns = defaultdict[str, Semaphore](lambda: Semaphore(2))
        """By host: several runs may be looked at there, and a person may want its stacks meanwhile."""

    def ask(self, host: str, script: str, asked: object, timeout: Seconds) -> Any:
        """Run a script of `on_node` there, and return its answer. It ends after `timeout`, even if nobody waits.

        Raises:
            TrainmonError: when the node has no connection or Python, or does not answer.
        """
        python = self._python_of(host)
        if not python:
            raise CommandFailed(f"{host} has no usable python3")
        words = json.dumps(asked), str(int(timeout))
        shell = self.shell_of(host)
        with self._turns[host]:
            done = shell.run([python, "-I", "-S", "-B", "-", *words], stdin=code(script), timeout=timeout + SLACK)
        _, began, packed = done.stdout.partition(BEGIN)
        if done.status != 0 or not began:
            why = last_line(done.stderr) or f"it ended with status {done.status}"
            raise CommandFailed(f"{host}: the look failed: {why}")
        try:
            return json.loads(zlib.decompressobj().decompress(packed, ANSWER_BYTES))
        except (zlib.error, ValueError) as error:
            raise CommandFailed(f"{host}: the answer of the look is cut off") from error

    def ask_each(self, asked: Mapping[str, object], script: str, timeout: Seconds) -> dict[str, Any | TrainmonError]:
        """Run a script on several hosts, with what each is asked. By host: its answer, or why there is none."""
        from multiprocessing.pool import ThreadPool  # 15 ms, for which the start need not wait

        def answer(host: str) -> Any | TrainmonError:
            try:
                return self.ask(host, script, asked[host], timeout)
            except TrainmonError as error:
                return error

        with ThreadPool(min(AT_ONCE, len(asked)) or 1) as pool:  # its threads are daemons
            return dict(zip(asked, pool.map(answer, asked, chunksize=1), strict=True))


SLACK: Seconds = 10.0
"""How much longer than the script its command may take: the start of Python on a slow disk, and the link."""


@cache
def code(script: str) -> bytes:
    """What is sent: `run.py`, and the script."""
    return b"\n\n".join(
        [*((SCRIPTS / f"{name}.py").read_bytes() for name in ("run", script)), b"run(look, *sys.argv[1:3])\n"]
    )


class Request(NamedTuple):
    """What a source gets. It reads nodes by `nodes`, and may report progress in a sentence."""

    state: State
    run: Run
    nodes: Nodes
    clock: Clock
    say: Callable[[str], object]
    latest: Callable[[], State]
    """The State now: a look takes a while."""


# ---- what all ranks do, from /proc of every node of the run, which touches no process --------------------------------

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


def look_at_processes(request: Request) -> RankLook:
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
    read, unread = by_rank(nodes.ask_each(asked, "proc", TIMEOUT), processes, list[tuple[int, list[Sample | None]]])
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
        raise CommandFailed(why_no_ranks(name, state))
    return attempt.ranks, {node: own for node, own in processes.items() if own}


def by_rank(
    answers: Mapping[str, Any | TrainmonError], processes: Mapping[str, Sized], rows: type[list[Row]]
) -> tuple[list[Row], list[str]]:
    """What all nodes have answered, and which of them have not, with the reason."""
    found, unread = list[Row](), list[str]()
    decoder(rows)  # other runs are looked at on other threads
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
    return f"its last step came {ago(now - at)} ago, usually one comes every {duration(cadence)}"


# ---- where the code of the ranks of a run stands, on request: by py-spy, or by a signal to trainmon_hooks ------------

STACK_PAUSES: tuple[Seconds, ...] = (0.0, 2.7, 3.3)
"""Before each stack: in a training that goes on, one of three shows that a rank moves."""

FIND_TIMEOUT: Seconds = 8.0
READ_TIMEOUT: Seconds = 75.0


StackRow = tuple[int, Literal["py-spy", "signal", ""], str, list[list[Frame]]]
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
        rows, unread = self._ask(ranks, STACK_PAUSES, READ_TIMEOUT)
        stood = {rank: standing(stacks, seen.doing[rank]) for rank, _, _, stacks in rows
                 if len(stacks) == len(STACK_PAUSES) and rank in seen.doing}  # fmt: skip
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
    ) -> tuple[list[StackRow], list[str]]:
        nodes = group_by(ranks, lambda one: one.node)
        asked = {
            node: (pauses, [(one.rank, one.pid, one.started_s, one.way) for one in ones])
            for node, ones in nodes.items()
        }
        return by_rank(self._nodes.ask_each(asked, "stacks", timeout), nodes, list[StackRow])
