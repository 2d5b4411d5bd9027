"""Polls the Prometheus servers of one cluster, each table on its own thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.nodes import NodeReports, OverSsh
from collectors.prometheus.reader import Client, MetricsReader
from collectors.prometheus.table import Nodes, TablePoller
from trainmon.config import ClusterSettings, MetricsSettings
from trainmon.lib import Clock, Instant
from trainmon.model import Event


class PrometheusPoller:
    """The tables of one cluster. `nodes` returns the nodes in sight, each with the paths whose disks are watched
    there; `over_ssh`, what SSH does with one. No method blocks."""

    def __init__(
        self,
        cluster: ClusterSettings,
        nodes: Nodes,
        over_ssh: Callable[[str], OverSsh],
        submit: Callable[[Event], None],
        clock: Clock,
        make_client: Callable[[MetricsSettings, Callable[[], Instant]], Client] = PrometheusClient,
    ) -> None:
        self._readers = {
            f"prometheus:{cluster.name}:{table.exporter}": MetricsReader(
                table, make_client(table, clock.now), clock.now
            )
            for table in cluster.metrics
        }
        self._reports = NodeReports(cluster.name, self._readers, over_ssh, submit)
        self.tables = tuple(
            TablePoller(name, cluster.name, reader, nodes, self._reports, submit, clock)
            for name, reader in self._readers.items()
        )

    def start(self) -> None:
        for table in self.tables:
            table.start()

    def stop(self) -> None:
        """Stop. A query is not waited for: it ends by its own time limit."""
        for table in self.tables:
            table.stop()

    def refresh(self) -> None:
        """Poll all tables soon: a person requested it."""
        for table in self.tables:
            table.refresh()

    def nodes_planned(self) -> None:
        """Other nodes may be in sight, such as those of a job that has started."""
        for table in self.tables:
            table.nodes_planned()

    def view(self, node: str) -> None:
        """A person opened a node's screen: its plots need its past."""
        for table in self.tables:
            table.view(node)

    def connected(self, node: str) -> None:
        """SSH reads a node now, maybe not for long."""
        self._reports.connected(node)

    def disks(self, node: str) -> frozenset[str]:
        """The paths whose disks the servers have; from any thread."""
        return frozenset(disk.path for reader in self._readers.values() for disk in reader.disks.get(node, ()))


def prometheus_pollers(
    clusters: Sequence[ClusterSettings],
    nodes: Callable[[str], Mapping[str, tuple[str, ...]]],
    over_ssh: Callable[[str], OverSsh],
    submit: Callable[[Event], None],
    clock: Clock,
) -> Mapping[str, PrometheusPoller]:
    """The pollers of the clusters with metrics, by cluster. `nodes` returns those in sight, each with its disks."""

    def of(cluster: ClusterSettings) -> PrometheusPoller:
        return PrometheusPoller(cluster, lambda: nodes(cluster.name), over_ssh, submit, clock)

    return {cluster.name: of(cluster) for cluster in clusters if cluster.metrics}
