"""How many healthy idle nodes a cluster has, against how many are wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainmon.model import Node, SchedulerNode, Source, State


class Spares(NamedTuple):
    """Of one cluster. None is not known: its scheduler has not said."""

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
    of_use = _partitions(state, cluster)
    nodes = [node for node in nodes if not of_use or not node.partitions or of_use & set(node.partitions)]
    idle = sum(_is_spare(node, state.nodes, state.sources) for node in nodes)
    return Spares(cluster, wanted, idle, sum(node.is_drained for node in nodes))


def _partitions(state: State, cluster: str) -> set[str]:
    """Where the runs train or wait: an idle node of another partition replaces none of theirs."""
    jobs = (state.jobs[key] for run in state.runs.values() for key in run.jobs if key in state.jobs)
    return {
        name
        for job in jobs
        if job.cluster == cluster and job.gone_at is None and job.stage != "ended"
        for name in (job.partition or "").split(",")
        if name
    }


def _is_spare(told: SchedulerNode, nodes: Mapping[str, Node], sources: Mapping[str, Source]) -> bool:
    """Idle for the scheduler, and nothing that we see of it speaks against it."""
    if told.state != "IDLE" or not told.is_usable:
        return False
    node, source = nodes.get(told.name), sources.get(f"node:{told.name}")
    if source is not None and source.health == "down":
        return False
    return node is None or all(gpu.state == "ok" for gpu in node.gpus)
