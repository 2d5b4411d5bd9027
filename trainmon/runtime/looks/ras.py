"""The roll call: what NCCL's RAS service says of the ranks of a run, asked twice on one of its nodes.

NCCL keeps the counts of the whole job in each of its processes, and any of them tells them. It is not asked before
2.28.7, nor where its version is not known beforehand: asking 2.27 has crashed jobs.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from trainmon.analysis.attempts.looks.nccl_ras import Answer, Circumstances, UnreadableError, call, placed, read
from trainmon.analysis.gpus import IDLE_PCT, gpus_of
from trainmon.lib import CommandFailed, HostUnreachable, Instant, Seconds, TrainmonError
from trainmon.model import SILENT, WANDB, RankLook
from trainmon.runtime.looks.nodes import Request, calm, ranks_of
from trainmon.transport.files import read_range

PORT = 28028
"""The default of NCCL_RAS_ADDR, which is in the environment of the processes and is not read."""

APART: Seconds = 15.0
"""Between the two answers. A step of a large training takes several seconds, and its counts grow with each."""

NODES = 3
"""How many nodes are asked until one answers."""

ASKED_FOR: Seconds = 26.0
TIMEOUT: Seconds = 30.0
"""How long the service is asked, and how long the script may take in all."""

VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
HEAD = 512 * 1024
"""Bytes of a log in whose begin NCCL writes its version, with NCCL_DEBUG=VERSION or INFO."""

WHY = {
    "gone": "the processes of its ranks on {node} have ended",
    "off": "nothing listens on port 28028 of {node}: NCCL's RAS service is off, in the network of a container, or "
    "at the address of NCCL_RAS_ADDR, which is not read",
    "foreign": "a process of another user has NCCL's RAS port on {node}",
    "hidden": "which process has NCCL's RAS port on {node} cannot be seen",
    "other jobs": "only other jobs answer on NCCL's RAS port on {node}",
    "unknown version": "NCCL's RAS service on {node} is not asked: which version of NCCL would answer is not known",
    "old version": "NCCL's RAS service is not asked: here is NCCL {versions}, it answers in JSON from 2.28.7 on, and "
    "questions have crashed 2.27",
    "silent": "no process on {node} answers on NCCL's RAS port: they may be stopped",
    "slow": "the answer of NCCL's RAS service on {node} did not end in time",
    "too long": "the answer of NCCL's RAS service on {node} is longer than 16 MB",
}


def look(request: Request, port: int = PORT) -> RankLook:
    """Ask twice, and judge.

    Raises:
        TrainmonError: when it could not be asked; says why.
    """
    run, nodes = request.run, request.nodes
    known, processes = ranks_of(run.name, request.state)
    pids = {node: [pid for one in own.values() for pid in (one.pid, *one.workers)] for node, own in processes.items()}
    node, first, first_at = _first(request, pids, port)
    request.say(f"{node} has answered; asking again in {APART:.0f}s")
    nodes.wait(APART)
    second, at = _ask(request, node, pids[node], [first.version], port)
    state = request.latest()
    now = state.runs.get(run.name, run)
    gpus = gpus_of(now, state.nodes, state.sources, at)
    circumstances = Circumstances(
        first_at,
        at,
        known,
        placed(second, processes, known.ranks),
        calm=calm(now, at),
        is_late=now.verdict in SILENT,
        are_gpus_busy=None if gpus.mean_pct is None else gpus.mean_pct > IDLE_PCT,
        step=now.step,
        before=next((one for one in now.looks if one.source == "nccl-ras" and one.is_answer), None),
    )
    return call(first, second, circumstances)


def _first(request: Request, pids: dict[str, list[int]], port: int) -> tuple[str, Answer, Instant]:
    """The first node that answers, its answer, and when it came."""
    log = request.run.log
    versions = sorted({*VERSION.findall("\n".join(() if log is None else log.lines))} or _in_head(request))
    refusal: TrainmonError | None = None
    for node in islice(pids, NODES):
        try:
            return node, *_ask(request, node, pids[node], versions, port)
        except TrainmonError as error:
            refusal = refusal if refusal is not None and isinstance(error, HostUnreachable) else error
    assert refusal is not None
    raise refusal


def _ask(request: Request, node: str, pids: list[int], versions: list[str], port: int) -> tuple[Answer, Instant]:
    """Ask the service on one node."""
    asked = {"port": port, "pids": pids, "versions": versions, "seconds": ASKED_FOR}
    found: dict[str, Any] = request.nodes.ask(node, "ras", asked, TIMEOUT)
    at = request.clock.now()
    if (why := found.get("why")) is not None:
        raise CommandFailed(WHY[why].format(node=node, versions=", ".join(found.get("versions", ()))))
    try:
        return read(found["text"]), at
    except UnreadableError as error:
        raise CommandFailed(f"NCCL's RAS service on {node}: {error}") from error


def _in_head(request: Request) -> set[str]:
    """The versions of NCCL that the begin of its log names."""
    log = request.run.log
    if log is None or log.path is None or log.host == WANDB:
        return set()
    try:
        head = read_range(request.nodes.shell_of(log.host), log.path, 0, HEAD)
    except TrainmonError:
        return set()
    return {*VERSION.findall(head.data.decode("utf-8", "replace"))}
