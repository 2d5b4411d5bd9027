"""What rules about nodes and GPUs share: current samples, the run on a node, and how a finding is made. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trainmon.alerting.rules.base import Rule, Unknown, Unseen, ago, is_answering, of_last_state, silent
from trainmon.analysis.gpus import FRESH
from trainmon.lib import Instant
from trainmon.model import LATE_AFTER, Alert, Finding, Gpu, Node, NodeHistory, Run, Severity, State

NEW = NodeHistory()

EXCLUDE = "press X on the node to exclude it from the run's pending jobs"
"""The advice for users who are not administrators."""

AWAY = frozenset({"stopped", "finished"})
"""Verdicts of runs that no node can harm."""

PRIORITY = {"dead": 2, "queued": 1, "stopped": 0, "finished": 0}
"""Of several runs on a node, the living one counts. A dead or queued run counts too: the problem may have ended it."""


@of_last_state
def runs_by_node(state: State) -> Mapping[str, Run]:
    """The run that counts on each node."""
    runs: dict[str, Run] = {}
    for run in sorted(state.runs.values(), key=lambda run: PRIORITY.get(run.verdict, 3)):
        runs.update(dict.fromkeys(run.spec.nodes, run))
    return runs


def affected_run(state: State, node: str) -> str | None:
    """The name of the run that a problem of a node harms."""
    run = runs_by_node(state).get(node)
    return None if run is None or run.verdict in AWAY else run.name


def is_used(state: State, node: str) -> bool:
    """Whether a run is on a node, or was until it died."""
    run = runs_by_node(state).get(node)
    return run is not None and run.verdict not in AWAY and run.verdict != "queued"


def fault_severity(state: State, node: str) -> Severity:
    """The severity of a broken GPU: a warning if Slurm has no job on the node."""
    slurm = state.scheduler_nodes.get(node)
    is_free = slurm is not None and slurm.state in ("IDLE", "DOWN") and not is_used(state, node)
    return "warning" if slurm is not None and is_free and is_answering(state, f"slurm:{slurm.cluster}") else "critical"


def past_of(state: State, node: str) -> NodeHistory:
    """What was seen of a node so far."""
    return state.node_histories.get(node, NEW)


class NodeRule(Rule, frozen=True, kw_only=True):
    """A rule about nodes. An alert cannot resolve while its node does not answer."""

    family = "nodes"

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        if alert.event:  # it happened, whether the node answers now or not
            return None
        return unseen_node(state, alert) or self.lacking(state, state.nodes[node_and_gpu(alert.subject)[0]], alert, now)

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        """What an answering node does not tell of the subject of an alert."""
        return None


class GpuRule(Rule, frozen=True, kw_only=True):
    """A rule about GPUs. An alert cannot resolve while its GPU does not report the numbers of the rule."""

    family = "gpus"
    needs: ClassVar[tuple[str, ...]] = ()
    """What the numbers are called, then the fields of a GPU that have them. One of the fields is enough."""

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        return unseen_gpu(state, alert, now, *self.needs)


@of_last_state
def answering_nodes(state: State) -> Sequence[Node]:
    """The nodes that answer now."""
    return [node for name, node in state.nodes.items() if is_answering(state, f"node:{name}")]


@of_last_state
def nodes_with_gpu_samples(state: State, now: Instant) -> Sequence[Node]:
    """The nodes with current GPU samples."""
    return [node for node in answering_nodes(state) if node.gpus and is_fresh(node.gpus_at, state, node.name, now)]


@of_last_state
def sampled_gpus(state: State, now: Instant) -> Sequence[tuple[Node, Gpu]]:
    """The GPUs with current samples, each with its node."""
    return [(node, gpu) for node in nodes_with_gpu_samples(state, now) for gpu in node.gpus]


def is_fresh(at: Instant | None, state: State, node: str, now: Instant) -> bool:
    """Whether numbers of a node are current: younger than a minute, or than three of its periods."""
    if at is None or now - at <= FRESH:
        return at is not None
    source = state.sources.get(f"node:{node}")
    return source is not None and now - at <= LATE_AFTER * source.period


def node_and_gpu(subject: str) -> tuple[str, int | None]:
    """The node and the GPU of `gpu:gpu-001/3` or `gpu:gpu-001/3 xid 79`; of `node:gpu-001 mlx5_0/1` the node alone."""
    kind, _, rest = subject.partition(":")
    name = rest.partition(" ")[0]
    node, _, index = name.rpartition("/")
    return (node, int(index) if index.isdigit() else None) if kind == "gpu" else (name, None)


def unseen_node(state: State, alert: Alert) -> Unknown | None:
    """Why the state of the node is unknown: its source does not answer, or it is not watched."""
    name, _ = node_and_gpu(alert.subject)
    return silent(state, alert.sources) if name in state.nodes else Unknown(f"{name} is no longer watched")


def unseen_gpu(state: State, alert: Alert, now: Instant, what: str = "", *fields: str) -> Unknown | None:
    """Why the state of the GPU is unknown: its node, the GPU itself, or all of these fields, called `what`, are
    missing."""
    if (unseen := unseen_node(state, alert)) is not None:
        return unseen
    name, index = node_and_gpu(alert.subject)
    node = state.nodes[name]
    if not is_fresh(node.gpus_at, state, name, now):
        since = "" if node.gpus_at is None else f" for {ago(now - node.gpus_at)}"
        return Unknown(f"the GPUs of {name} have not been read{since}")
    gpu = next((gpu for gpu in node.gpus if gpu.index == index), None)
    if gpu is None:
        return Unknown(f"{name} no longer lists its GPU {index}")
    if gpu.state != "ok":
        return Unknown(f"GPU {index} does not answer: {gpu.error or gpu.state}")
    is_lacking = fields and all(getattr(gpu, field) is None for field in fields)
    return Unknown(f"GPU {index} does not report its {what}") if is_lacking else None


def node_finding(rule: Rule, node: Node, state: State, severity: Severity, summary: str, **more: Any) -> Finding:
    """A finding about a node. `more` has further fields, or others than these."""
    known: dict[str, Any] = {
        "rule": rule.name,
        "subject": f"node:{node.name}",
        "severity": severity,
        "summary": summary,
        "cluster": node.cluster,
        "run": affected_run(state, node.name),
        "node": node.name,
        "sources": (f"node:{node.name}",),
    }
    return Finding(**known | more)


def gpu_finding(
    rule: Rule, node: Node, gpu: Gpu, state: State, severity: Severity, summary: str, **more: Any
) -> Finding:
    """A finding about a GPU; its summary begins with the GPU's name."""
    more["subject"] = f"gpu:{node.name}/{gpu.index}"
    return node_finding(rule, node, state, severity, f"GPU {gpu.index} of {node.name} {summary}", **more)


def has_slurm(state: State, cluster: str) -> bool:
    """Whether Slurm reports the nodes of a cluster."""
    source = state.sources.get(f"slurm:{cluster}")
    return source is not None and source.answered_at is not None
