"""Polls the metrics tables of a cluster, each on its own thread: a server that is slow delays no other table."""

from __future__ import annotations

import logging
import math
import queue
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from collectors.polling_thread import PollingThread
from collectors.prometheus import query
from collectors.prometheus.nodes import NodeReports, OverSsh
from collectors.prometheus.reader import Client, MetricsReader, PrometheusClient, QueryFailed
from trainmon.config import ClusterSettings, MetricsSettings
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import Event, Source

# ---- polls one metrics table of a cluster, on its own thread ---------------------------------------------------------

log = logging.getLogger(__name__)

HISTORY_EVERY: Seconds = 600.0
"""The past of a node is read at most so often, when its screen is opened."""

Nodes = Callable[[], Mapping[str, tuple[str, ...]]]
"""The nodes in sight, each with the paths whose disks are watched there."""


class TablePoller(PollingThread):
    """Polls the server of one table. `name` is its source; what it shows of nodes goes to `reports`."""

    join_timeout: ClassVar[Seconds] = 0.15

    def __init__(
        self,
        name: str,
        cluster: str,
        reader: MetricsReader,
        nodes: Nodes,
        reports: NodeReports,
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        super().__init__(name.replace(":", " "), reader.settings.every, submit, clock)
        self._name, self._cluster, self._reader = name, cluster, reader
        self._nodes, self._reports = nodes, reports
        self._in_sight: Mapping[str, tuple[str, ...]] = {}
        self._views: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._past_at: dict[str, Seconds] = {}
        self._disks_past: set[tuple[str, str]] = set()
        """The disks whose past was read, by node and path."""
        self._disks_past_due: Seconds = -math.inf

    def start(self) -> None:
        self._report(phase="connecting")
        super().start()

    def refresh(self) -> None:
        self._reader.times.refresh(self._clock.monotonic())
        self._wake.set()

    def nodes_planned(self) -> None:
        """Other nodes may be in sight, such as those of a job that has started. Does not block."""
        self._wake.set()

    def view(self, node: str) -> None:
        """A person opened a node's screen: its plots need its past. Does not block."""
        self._views.put(node)
        self._wake.set()

    def step(self) -> Seconds:
        """Poll the server if it is due. Returns the seconds until the next call."""
        nodes, times = self._nodes(), self._reader.times
        if nodes.items() - self._in_sight.items():  # another node, or another of its disks
            times.refresh(self._clock.monotonic())
        self._in_sight = nodes
        self._reports.expect(nodes)
        if times.due_in(self._clock.monotonic()) <= 0:
            self._poll(nodes)
        self._read_past_of_disks()
        while not self._views.empty() and not self._stopping.is_set():
            self._read_past(self._views.get())
        self._reports.keep(self._name, nodes)
        for node in self._past_at.keys() - nodes.keys():
            del self._past_at[node]
        self._disks_past = {disk for disk in self._disks_past if disk[0] in nodes}
        return times.due_in(self._clock.monotonic())

    def _poll(self, nodes: Mapping[str, tuple[str, ...]]) -> None:
        reader, began = self._reader, self._clock.monotonic()
        if not nodes:  # no poll begins: the first node is read at once
            self._report(phase="off", hint="no node of its cluster is watched")
            reader.times.answered(began)
            return
        reader.times.begin(began)
        try:
            found = reader.read([*nodes], nodes)
        except Exception as failure:  # a bug must not end the polls silently: it becomes the source's error
            error = failure if isinstance(failure, QueryFailed) else None
            if error is None:
                log.exception("the metrics of %s", self._name)
                error = QueryFailed(f"{type(failure).__name__}: {failure}")
            reader.times.failed(began)
            retry_at = self._clock.now() + reader.times.interval
            self._report(phase="retrying", error=error.message, hint=error.hint or None, retry_at=retry_at)
            self._reports.failed(self._name, error.message)
            return
        reader.times.answered(began)
        newest = reader.ours(max(node.at for node in found.values()))
        self._report(phase="up", answered_at=newest, hint=reader.note or None)
        self._reports.read(self._name, nodes, found)

    def _read_past(self, node: str) -> None:
        now = self._clock.monotonic()
        if self._reader.part != "gpu" or now - self._past_at.get(node, -HISTORY_EVERY) < HISTORY_EVERY:
            return
        self._past_at[node] = now
        try:
            for past in self._reader.past(node):
                self._submit(past)
        except QueryFailed as failure:
            log.warning("the past of %s: %s", node, failure.message)

    def _read_past_of_disks(self) -> None:
        """Read the past of disks that are seen for the first time. A server that fails is asked again much later."""
        now, disks = self._clock.monotonic(), self._reader.disks
        if now < self._disks_past_due:
            return
        seen = {(node, disk.path) for node in self._in_sight for disk in disks.get(node, ()) if disk.mount}
        new = dict.fromkeys(node for node, _ in sorted(seen - self._disks_past))
        for some in query.chunks([*new]):
            if self._stopping.is_set():
                return
            try:
                for past in self._reader.past_of_disks(some):
                    self._submit(past)
            except QueryFailed as failure:
                log.warning("the history of the disks of %s cannot be read: %s", some[0], failure.message)
                self._disks_past_due = now + HISTORY_EVERY
                return
            self._disks_past |= {disk for disk in seen if disk[0] in some}

    def _report(self, **changes: Any) -> None:
        source = {"name": self._name, "kind": "prometheus", "cluster": self._cluster, "period": self._reader.period}
        self._submit_source(Source(**{**source, **changes}))


# ---- polls the Prometheus servers of one cluster, each table on its own thread ---------------------------------------


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
