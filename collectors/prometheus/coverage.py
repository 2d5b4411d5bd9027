"""Which nodes Prometheus covers, and which of them are connected to over SSH, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from collectors.assignment import WatchPlan, disks_of_nodes
from trainmon.config import ClusterSettings
from trainmon.lib import Seconds
from trainmon.model import Source

VIEWED_FOR: Seconds = 60.0
"""How long a node stays connected after its screen was closed."""


class Coverage:
    """The nodes of the clusters with metrics. A covered node is connected to over SSH if a run trains there and the
    config does not forbid it, or while its screen is open. The host that reads the files is always connected to."""

    def __init__(self, clusters: Sequence[ClusterSettings]) -> None:
        self._clusters = {cluster.name: cluster for cluster in clusters if cluster.metrics}
        self._nodes: dict[str, Mapping[str, tuple[str, ...]]] = {}
        """By cluster: the nodes that are read from Prometheus, each with the paths whose disks are watched there."""
        self._watched: dict[str, frozenset[str]] = {}
        """By cluster: its nodes, and the one that reads the files."""
        self._viewed: dict[str, Seconds] = {}
        """By node: when its screen was last seen open."""
        self._has_news = False

    def limited(self, plan: WatchPlan, run_nodes: Collection[str]) -> WatchPlan:
        """The plan with only those hosts that are connected to over SSH now."""
        cluster = self._clusters.get(plan.cluster)
        if cluster is None or not plan.hosts:
            return plan
        first = plan.hosts[0]
        reads_files = bool(plan.runs or plan.shared_disks) or first not in plan.nodes
        always = {cluster.login, first if reads_files else None}
        self._watched[plan.cluster] = frozenset(plan.nodes)
        disks = disks_of_nodes(plan).items()
        self._nodes[plan.cluster] = {host: own for host, own in disks if host in plan.nodes and host not in always}
        if cluster.ssh == "runs":
            always |= {*run_nodes, *(node for run in plan.runs for node in run.nodes)}
        return replace(plan, hosts=tuple(host for host in plan.hosts if host in always or host in self._viewed))

    def nodes(self, cluster: str) -> Mapping[str, tuple[str, ...]]:
        """The nodes of a cluster that are read from Prometheus, each with the paths whose disks are watched there."""
        return self._nodes.get(cluster, {})

    def cluster_of(self, host: str) -> str | None:
        """The cluster whose Prometheus has the numbers of a host."""
        return next((cluster for cluster, nodes in self._nodes.items() if host in nodes), None)

    def past_of(self, host: str) -> str | None:
        """The cluster whose Prometheus has the past of a host: also of the one that reads the files."""
        return next((cluster for cluster, nodes in self._watched.items() if host in nodes), None)

    def hides(self, source: Source) -> bool:
        """Whether a report of an SSH connection says nothing about its node, because Prometheus has its numbers."""
        return source.phase != "up" and source.name.removeprefix("node:") in self.nodes(source.cluster)

    def view(self, host: str, now: Seconds) -> bool:
        """A person looks at a node. Returns whether its screen has just been opened. From any thread."""
        is_new = host not in self._viewed
        if self.past_of(host) is None:
            return False
        self._viewed[host] = now
        self._has_news |= is_new
        return is_new

    def has_changed(self, now: Seconds) -> bool:
        """Whether screens were opened or closed since the last call."""
        closed = [host for host, at in [*self._viewed.items()] if now - at > VIEWED_FOR]
        for host in closed:
            del self._viewed[host]
        has_changed, self._has_news = self._has_news or bool(closed), False
        return has_changed
