"""Spare nodes: how many healthy idle nodes a cluster has, and how many are wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainmon.model import Node, SchedulerNode, Source, State


class Spares(NamedTuple):
    """Spare nodes of one cluster. `None` means that the scheduler has not reported them."""

    cluster: str
    wanted: int
    idle_healthy: int | None
    drained: int | None

    @property
    def are_missing(self) -> bool:
        return self.idle_healthy is not None and self.idle_healthy < self.wanted


def spares(state: State) -> tuple[Spares, ...]:
    """One for every cluster that has a scheduler."""
    return tuple(_of(state, name) for name in state.clusters if f"slurm:{name}" in state.sources)


def _of(state: State, cluster: str) -> Spares:
    wanted = state.clusters[cluster].spares
    nodes = [node for node in state.scheduler_nodes.values() if node.cluster == cluster]
    if not nodes or not wanted:  # where none is wanted, only the nodes of the jobs are asked for
        return Spares(cluster, wanted, None, sum(node.is_drained for node in nodes) if nodes else None)
    jobs = (state.jobs[key] for run in state.runs.values() for key in run.jobs if key in state.jobs)
    live = [job for job in jobs if job.cluster == cluster and job.gone_at is None and job.stage != "ended"]
    # An idle node in a partition that no run uses cannot replace one of their nodes.
    of_use = {name for job in live for name in (job.partition or "").split(",") if name}
    nodes = [node for node in nodes if not of_use or not node.partitions or of_use & set(node.partitions)]
    idle = sum(_is_spare(node, state.nodes, state.sources) for node in nodes)
    return Spares(cluster, wanted, idle, sum(node.is_drained for node in nodes))


def _is_spare(listed: SchedulerNode, nodes: Mapping[str, Node], sources: Mapping[str, Source]) -> bool:
    """Whether the scheduler says idle, and our own data shows no fault."""
    if listed.state != "IDLE" or not listed.is_usable:
        return False
    node, source = nodes.get(listed.name), sources.get(f"node:{listed.name}")
    if source is not None and source.health == "down":
        return False
    return node is None or all(gpu.state == "ok" for gpu in node.gpus)
