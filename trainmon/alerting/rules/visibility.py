"""What of the nodes and GPUs can be seen now, whose they are, and why something of them cannot be seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from trainmon.alerting.rules.base import ago, is_seen, unseen
from trainmon.analysis.gpus import FRESH
from trainmon.lib import Instant, Seconds
from trainmon.model import LATE_AFTER, Alert, Gpu, Node, Run, Severity, Source, State

EXCLUDE = "press X on the node: the run's waiting jobs then leave it out"
"""What a person can do about a bad node without being an administrator."""

AWAY = frozenset({"stopped", "finished"})
"""Runs that suffer from no node."""

PLACES = {"dead": 2, "queued": 1, "stopped": 0, "finished": 0}
"""Of several runs on a node the one that lives. One that died or waits anew still suffers from what is found now: it is
what ended it."""


class Whose:
    """Which run is on a node, made when it is first asked: of a well cluster nobody asks."""

    def __init__(self, state: State) -> None:
        self._state = state

    @cached_property
    def _runs(self) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        for run in sorted(self._state.runs.values(), key=lambda run: PLACES.get(run.verdict, 3)):
            runs.update(dict.fromkeys(run.spec.nodes, run))
        return runs

    def run(self, node: str) -> Run | None:
        """The run that is on it."""
        return self._runs.get(node)

    def name(self, node: str) -> str | None:
        """The run that suffers from what is wrong with a node."""
        run = self._runs.get(node)
        return None if run is None or run.verdict in AWAY else run.name

    def last(self, node: str) -> str | None:
        """The run that is on it or was there last: what a person stopped explains what follows from it."""
        run = self._runs.get(node)
        return None if run is None else run.name

    def holds(self, node: str) -> bool:
        """Whether a run is on it, or was until it died."""
        run = self._runs.get(node)
        return run is not None and run.verdict != "queued" and run.verdict not in AWAY

    def worst(self, node: str) -> Severity:
        """How bad a broken GPU is: nobody need get up for a node on which Slurm has no job."""
        told = self._state.scheduler_nodes.get(node)
        if told is None or told.state not in ("IDLE", "DOWN") or self.holds(node):
            return "critical"
        return "warning" if is_seen(self._state.sources.get(f"slurm:{told.cluster}")) else "critical"


def nodes_seen(state: State) -> Iterator[Node]:
    """The nodes that answer now."""
    sources = state.sources
    for name, node in state.nodes.items():
        if is_seen(sources.get(f"node:{name}")):
            yield node


def gpus_seen(state: State, now: Instant) -> Iterator[Node]:
    """The nodes whose GPUs are read now."""
    for node in nodes_seen(state):
        if node.gpus and is_fresh(node.gpus_at, state, node.name, now):
            yield node


def is_fresh(at: Instant | None, state: State, node: str, now: Instant) -> bool:
    """Whether numbers of a node are true now: younger than a minute, or than three of its periods."""
    if at is None:
        return False
    age = now - at
    if age <= FRESH:
        return True
    source = state.sources.get(f"node:{node}")
    return source is not None and age <= LATE_AFTER * source.period


def place(subject: str) -> tuple[str, int | None]:
    """The node and the GPU of `gpu:gpu-001/3` or `gpu:gpu-001/3 xid 79`; of `node:gpu-001 mlx5_0/1` the node alone."""
    kind, _, rest = subject.partition(":")
    name = rest.partition(" ")[0]
    if kind != "gpu":
        return name, None
    node, _, index = name.rpartition("/")
    return node, int(index) if index.isdigit() else None


def node_unseen(state: State, alert: Alert) -> str | None:
    """Why a node of an alert cannot be seen: its source is silent, or it is not watched."""
    name, _ = place(alert.subject)
    if name not in state.nodes:
        return f"{name} is no longer watched"
    return unseen(state, alert)


def gpu_unseen(state: State, alert: Alert, now: Instant, lacks: Callable[[Gpu], str | None]) -> str | None:
    """Why a GPU of an alert cannot be seen: with its node, by itself, or in the number that counts, as `lacks` says."""
    why = node_unseen(state, alert)
    if why is not None:
        return why
    name, index = place(alert.subject)
    node = state.nodes[name]
    if not is_fresh(node.gpus_at, state, name, now):
        since = "" if node.gpus_at is None else f" for {ago(now - node.gpus_at)}"
        return f"the GPUs of {name} have not been read{since}"
    gpu = next((gpu for gpu in node.gpus if gpu.index == index), None)
    if gpu is None:
        return f"{name} no longer lists its GPU {index}"
    return lacks(gpu)


def not_ok(gpu: Gpu) -> str | None:
    """Why a GPU has no numbers."""
    return None if gpu.state == "ok" else f"GPU {gpu.index} does not answer: {gpu.error or gpu.state}"


def silence(source: Source, state: State, now: Instant) -> Seconds | None:
    """For how long a source has said nothing; None if it never spoke."""
    return None if source.seen_at is None else lasted(source.seen_at, state, now)


def lasted(since: Instant, state: State, now: Instant) -> Seconds:
    """How long something has been so while this program looked: what it slept does not count."""
    return now - max(since, state.woke_at or 0.0)


def has_slurm(state: State, cluster: str) -> bool:
    """Whether a scheduler tells of a cluster's nodes."""
    source = state.sources.get(f"slurm:{cluster}")
    return source is not None and source.seen_at is not None
