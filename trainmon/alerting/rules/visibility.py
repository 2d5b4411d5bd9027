"""What rules about nodes and GPUs share: what is seen now, the run on a node, and how a finding is made. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from trainmon.alerting.rules.base import Rule, ago, is_seen, unseen
from trainmon.analysis.gpus import FRESH
from trainmon.lib import Instant, Seconds
from trainmon.model import LATE_AFTER, Alert, Finding, Gpu, Node, Run, Severity, Source, State

EXCLUDE = "press X on the node: the run's waiting jobs then leave it out"
"""The advice for users who are not administrators."""

AWAY = frozenset({"stopped", "finished"})
"""Verdicts of runs that no node can harm."""

PRIORITY = {"dead": 2, "queued": 1, "stopped": 0, "finished": 0}
"""Of several runs on a node, the living one counts. A dead or queued run counts too: what is found now may have ended
it."""


class Whose:
    """Which run is on which node. It is computed at the first question: without findings nothing asks."""

    def __init__(self, state: State) -> None:
        self._state = state

    @cached_property
    def _runs(self) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        for run in sorted(self._state.runs.values(), key=lambda run: PRIORITY.get(run.verdict, 3)):
            runs.update(dict.fromkeys(run.spec.nodes, run))
        return runs

    def run(self, node: str) -> Run | None:
        """The run on a node."""
        return self._runs.get(node)

    def name(self, node: str) -> str | None:
        """The name of the run that a problem of a node harms."""
        run = self._runs.get(node)
        return None if run is None or run.verdict in AWAY else run.name

    def last(self, node: str) -> str | None:
        """The name of the run that is or was on a node, even if it was stopped."""
        run = self._runs.get(node)
        return None if run is None else run.name

    def holds(self, node: str) -> bool:
        """Whether a run is on a node, or was until it died."""
        run = self._runs.get(node)
        return run is not None and run.verdict != "queued" and run.verdict not in AWAY

    def worst(self, node: str) -> Severity:
        """The severity of a broken GPU: a warning if Slurm has no job on the node."""
        slurm = self._state.scheduler_nodes.get(node)
        if slurm is None or slurm.state not in ("IDLE", "DOWN") or self.holds(node):
            return "critical"
        return "warning" if is_seen(self._state.sources.get(f"slurm:{slurm.cluster}")) else "critical"


def nodes_seen(state: State) -> Iterator[Node]:
    """The nodes that answer now."""
    sources = state.sources
    for name, node in state.nodes.items():
        if is_seen(sources.get(f"node:{name}")):
            yield node


def gpus_seen(state: State, now: Instant) -> Iterator[Node]:
    """The nodes with current GPU samples."""
    for node in nodes_seen(state):
        if node.gpus and is_fresh(node.gpus_at, state, node.name, now):
            yield node


def is_fresh(at: Instant | None, state: State, node: str, now: Instant) -> bool:
    """Whether numbers of a node are current: younger than a minute, or than three of its periods."""
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
    """Why the node of an alert cannot be seen: its source does not answer, or it is not watched."""
    name, _ = place(alert.subject)
    if name not in state.nodes:
        return f"{name} is no longer watched"
    return unseen(state, alert)


def gpu_unseen(
    state: State, alert: Alert, now: Instant, what: str = "", *fields: str, may_fail: bool = False
) -> str | None:
    """Why the GPU of an alert cannot be seen: its node, the GPU itself, or all of these fields, called `what`, are
    missing. With `may_fail`, a GPU that reports only an error counts as seen."""
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
    if gpu.state != "ok":
        return None if may_fail else f"GPU {gpu.index} does not answer: {gpu.error or gpu.state}"
    is_missing = bool(fields) and all(getattr(gpu, field) is None for field in fields)
    return f"GPU {gpu.index} does not report its {what}" if is_missing else None


def node_finding(rule: Rule, node: Node, whose: Whose, severity: Severity, summary: str, **more: Any) -> Finding:
    """A finding about a node. `more` has further fields, or others than these."""
    known: dict[str, Any] = {
        "rule": rule.name,
        "subject": f"node:{node.name}",
        "severity": severity,
        "summary": summary,
        "cluster": node.cluster,
        "run": whose.name(node.name),
        "node": node.name,
        "sources": (f"node:{node.name}",),
    }
    return Finding(**known | more)


def gpu_finding(
    rule: Rule, node: Node, gpu: Gpu, whose: Whose, severity: Severity, summary: str, **more: Any
) -> Finding:
    """A finding about a GPU; its summary begins with the GPU's name."""
    summary = f"GPU {gpu.index} of {node.name} {summary}"
    return node_finding(rule, node, whose, severity, summary, subject=f"gpu:{node.name}/{gpu.index}", **more)


def silence(source: Source, state: State, now: Instant) -> Seconds | None:
    """How long a source has sent nothing; None if it never answered."""
    return None if source.seen_at is None else lasted(source.seen_at, state, now)


def lasted(since: Instant, state: State, now: Instant) -> Seconds:
    """How long a condition has lasted while this program watched, without the time that it was suspended."""
    return now - max(since, state.woke_at or 0.0)


def has_slurm(state: State, cluster: str) -> bool:
    """Whether Slurm reports the nodes of a cluster."""
    source = state.sources.get(f"slurm:{cluster}")
    return source is not None and source.seen_at is not None
