"""Nodes: what was read of them, memory leaks, spare nodes, and why one is late. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

from trainmon.lib import Instant, Seconds
from trainmon.model import PROBES_WITHOUT_GPUS, Node, SchedulerNode, Source, State


def has_read_gpus(node: Node) -> bool:
    """Whether its GPUs were read, or it has none. NVML's list is complete."""
    lists_none = node.probe == "nvml" and node.gpus_expected is not None and not node.gpus
    return node.gpus_at is not None or node.probe in PROBES_WITHOUT_GPUS or lists_none


def failing_server(source: Source | None, sources: Mapping[str, Source]) -> Source | None:
    """The Prometheus server with the numbers of a node, if the node is late because that server fails."""
    if source is None or source.health == "ok" or source.error is not None:
        return None
    server = sources.get(source.via or "")
    return server if server is not None and server.error is not None else None


# ---- memory leaks: from the least that was in use every ten minutes --------------------------------------------------

BUCKETS = 7
"""An hour of floors and the beginning of the next: a start-up, a cache that fills and a long save are shorter."""

WINDOW = 19
"""Three hours: a leak that began an hour ago must not be hidden by the calm before."""

GROWN = 0.02
"""Of the whole memory, over the window: less is noise."""

NOISE = 0.001
"""Of the whole memory: a floor that falls by no more has not been let go."""

STEADY = 0.5
"""Of the pace of the first half that the second must still have: a cache fills ever slower, a leak does not."""


class Leak(NamedTuple):
    """A memory leak: its growth, its start, and when the memory is exhausted."""

    mib_per_hour: float
    since: Instant
    full_at: Instant


def leak(floors: Sequence[tuple[Instant, int]], total_mib: int, now: Instant) -> Leak | None:
    """The leak of a node whose memory floor rises for an hour without slowing down. The last floor is incomplete."""
    if len(floors) <= BUCKETS:
        return None
    rising = _rising(floors[-WINDOW - 1 : -1], NOISE * total_mib)
    at, used = rising[-1]
    if len(rising) < BUCKETS or used - rising[0][1] < GROWN * total_mib:
        return None
    newest = floors[-1][1]
    if newest < used - NOISE * total_mib:  # it has been let go
        return None
    pace, half = _pace(rising), len(rising) // 2
    if pace <= 0 or _pace(rising[half:]) < STEADY * _pace(rising[: half + 1]):
        return None
    return Leak(pace * 3_600.0, rising[0][0], max(now, at) + max(0.0, total_mib - max(used, newest)) / pace)


def _rising(floors: Sequence[tuple[Instant, int]], noise: float) -> Sequence[tuple[Instant, int]]:
    """The last floors without a fall, from where the rise began."""
    first = len(floors) - 1
    while first and floors[first - 1][1] <= floors[first][1] + noise:
        first -= 1
    calm = floors[first][1] + noise
    while first + 1 < len(floors) and floors[first + 1][1] <= calm:
        first += 1
    return floors[first:]


def _pace(floors: Sequence[tuple[Instant, int]]) -> Seconds:
    """MiB a second, by Theil and Sen: one large step is no pace, and many small ones are."""
    return median((b[1] - a[1]) / max(1.0, b[0] - a[0]) for a, b in combinations(floors, 2))


# ---- spare nodes: how many healthy idle nodes a cluster has, and how many are wanted ---------------------------------


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
    if not nodes or not wanted:  # without wanted spares, only the nodes of jobs are queried
        return Spares(cluster, wanted, None, sum(node.is_drained for node in nodes) if nodes else None)
    jobs = (state.jobs[key] for run in state.runs.values() for key in run.jobs if key in state.jobs)
    live = [job for job in jobs if job.cluster == cluster and job.gone_at is None and job.stage != "ended"]
    # An idle node in a partition that no run uses cannot replace one of their nodes.
    of_use = {name for job in live for name in (job.partition or "").split(",") if name}
    nodes = [node for node in nodes if not of_use or not node.partitions or of_use & set(node.partitions)]
    idle = [node for node in nodes if _is_spare(node, state.nodes, state.sources)]
    return Spares(cluster, wanted, len(idle), sum(node.is_drained for node in nodes))


def _is_spare(listed: SchedulerNode, nodes: Mapping[str, Node], sources: Mapping[str, Source]) -> bool:
    """Whether the scheduler reports it idle, and our own data shows no fault."""
    node, source = nodes.get(listed.name), sources.get(f"node:{listed.name}")
    is_down = source is not None and source.health == "down"
    is_idle = listed.state == "IDLE" and listed.is_usable and not is_down
    return is_idle and (node is None or all(gpu.state == "ok" for gpu in node.gpus))
