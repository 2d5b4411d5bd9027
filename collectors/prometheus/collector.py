"""Polls the Prometheus servers of one cluster: their series become the readings of its nodes, as a probe sends them.

A node that is also connected to over SSH is read there: that is newer. Its numbers from here are used when SSH fails.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from collectors.polling_thread import PollingThread
from collectors.prometheus import readings
from collectors.prometheus.client import PrometheusClient, QueryFailed
from collectors.prometheus.reader import Client, MetricsReader
from collectors.prometheus.readings import NodeNumbers
from trainmon.config import ClusterSettings, MetricsSettings
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import (
    AnyReading,
    DiskSamples,
    Event,
    GpuFactsAll,
    GpuSamples,
    Hello,
    NodeReading,
    Source,
    SourceRemoved,
    Trouble,
    Xid,
)

log = logging.getLogger(__name__)

HISTORY_EVERY: Seconds = 600.0
"""The past of a node is read at most so often, when its screen is opened."""


class OverSsh(NamedTuple):
    """What SSH does with a node: whether it reads it now, and its error."""

    is_up: bool = False
    problem: str | None = None


class PrometheusPoller(PollingThread):
    """Polls the servers of one cluster. `nodes` returns the nodes in sight, each with the paths whose disks are watched
    there; `over_ssh`, what SSH does with one."""

    def __init__(
        self,
        cluster: ClusterSettings,
        nodes: Callable[[], Mapping[str, tuple[str, ...]]],
        over_ssh: Callable[[str], OverSsh],
        submit: Callable[[Event], None],
        clock: Clock,
        make_client: Callable[[MetricsSettings, Callable[[], Instant]], Client] = PrometheusClient,
    ) -> None:
        super().__init__(f"prometheus {cluster.name}", min(table.every for table in cluster.metrics), submit, clock)
        self._cluster = cluster.name
        self._nodes, self._over_ssh = nodes, over_ssh
        self._readers = {
            f"prometheus:{cluster.name}:{table.exporter}": MetricsReader(
                table, make_client(table, clock.now), clock.now
            )
            for table in cluster.metrics
        }
        self._greeted: dict[str, Hello] = {}
        """By node that is read here: the Hello that was submitted."""
        self._troubles: dict[tuple[str, str], str] = {}
        """By node and part: the trouble that was submitted."""
        self._in_sight: Mapping[str, tuple[str, ...]] = {}
        self._views: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._past_at: dict[str, Seconds] = {}
        self._connected: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start(self) -> None:
        for name, reader in self._readers.items():
            self._report(name, reader, phase="connecting")
        super().start()

    def refresh(self) -> None:
        for reader in self._readers.values():
            reader.times.refresh(self._clock.monotonic())
        self._wake.set()

    def nodes_planned(self) -> None:
        """Other nodes may be in sight, such as those of a job that has started. Does not block."""
        self._wake.set()

    def view(self, node: str) -> None:
        """A person opened a node's screen: its plots need its past. Does not block."""
        self._views.put(node)
        self._wake.set()

    def connected(self, node: str) -> None:
        """SSH reads a node now, maybe not for long: after that, it is greeted from here again. Does not block."""
        self._connected.put(node)

    def disks(self, node: str) -> frozenset[str]:
        """The paths whose disks the servers have; from any thread."""
        return frozenset(disk.path for reader in self._readers.values() for disk in reader.disks.get(node, ()))

    def step(self) -> Seconds:
        """Poll the servers that are due. Returns the seconds until the next call."""
        nodes = self._nodes()
        if nodes.items() - self._in_sight.items():  # another node, or another of its disks
            self.refresh()
        self._in_sight = nodes
        for node in nodes:
            if f"node:{node}" not in self._sources and not self._over_ssh(node).is_up:
                self._submit_source(replace(self._node_source(next(iter(self._readers)), node), phase="waiting"))
        for name, reader in self._readers.items():
            if reader.times.due_in(self._clock.monotonic()) <= 0:
                self._poll(name, reader, nodes)
        while not self._views.empty() and not self._stopping.is_set():
            self._read_past(self._views.get())
        for node in self._greeted.keys() - nodes.keys():
            self._forget(node)
        return min(reader.times.due_in(self._clock.monotonic()) for reader in self._readers.values())

    # ---- one poll ----------------------------------------------------------------------------------------------------

    def _poll(self, name: str, reader: MetricsReader, nodes: Mapping[str, tuple[str, ...]]) -> None:
        began = self._clock.monotonic()
        if not nodes:  # no poll begins: the first node is read at once
            self._report(name, reader, phase="off", hint="no node of its cluster is watched")
            reader.times.answered(began)
            return
        reader.times.begin(began)
        try:
            found = reader.read([*nodes], nodes)
        except Exception as failure:  # a bug must not end the polls silently: it becomes the source's error
            error = failure if isinstance(failure, QueryFailed) else None
            if error is None:
                log.exception("the metrics of %s", name)
                error = QueryFailed(f"{type(failure).__name__}: {failure}")
            reader.times.failed(began)
            retry_at = self._clock.now() + reader.times.interval
            hint = error.hint or None
            self._report(name, reader, phase="retrying", error=error.message, hint=hint, retry_at=retry_at)
            return
        reader.times.answered(began)
        newest = reader.ours(max(node.at for node in found.values()))
        self._report(name, reader, phase="up", answered_at=newest, hint=reader.note or None)
        while not self._connected.empty():
            self._ungreet(self._connected.get())
        for node in nodes:
            self._submit_node(name, reader, node, found.get(node))

    def _submit_node(self, name: str, reader: MetricsReader, node: str, numbers: NodeNumbers | None) -> None:
        xids = [] if numbers is None else [*reader.xids.of(node, numbers)]
        ssh = self._over_ssh(node)
        if ssh.is_up:  # it is newer; when it ends, the node is greeted from here again
            self._ungreet(node)
            if numbers is not None:
                reader.latest[node] = reader.ours(numbers.at)
            return
        at = None if numbers is None else reader.ours(numbers.at)
        if at is None or numbers is None or at <= reader.latest.get(node, 0.0):
            self._report_silence(name, reader, node)
            return
        is_first = node not in reader.latest
        reader.latest[node] = at
        self._submit_source(self._node_source(name, node))
        self._greet(node, at, numbers)
        self._set_trouble(node, at, reader.part, None)
        self._set_trouble(node, at, "ssh", ssh.problem)
        for reading in self._readings(reader, node, numbers, at):
            self._submit_reading(node, at, reading)
        for index, time, code in xids:
            xid = Xid(v=1, t=reader.ours(time), code=code, index=index, source="prometheus")
            self._submit_reading(node, xid.t, xid)
        if is_first:  # it may have been silent for long
            self._report_silence(name, reader, node)

    def _node_source(self, name: str, node: str) -> Source:
        """The source of a node that is read now, through the first of our sources that knows it."""
        via = next((other for other, reader in self._readers.items() if node in reader.latest), name)
        period = max(reader.period for reader in self._readers.values())
        return Source(name=f"node:{node}", kind="node", cluster=self._cluster, phase="up", via=via, period=period)

    def _readings(self, reader: MetricsReader, node: str, numbers: NodeNumbers, at: Instant) -> Sequence[AnyReading]:
        if reader.exporter.is_host:
            host = readings.host_sample(numbers, at, reader.tolerance)
            return [host, DiskSamples(v=1, t=at, d=reader.disks[node])]
        facts = readings.gpu_facts(numbers, reader.tolerance)
        has_changed = facts != reader.facts.get(node)
        reader.facts[node] = facts
        samples = GpuSamples(v=1, t=at, g=readings.gpu_samples(numbers, reader.tolerance))
        return [*([GpuFactsAll(v=1, t=at, g=facts)] if has_changed else []), samples]

    def _greet(self, node: str, at: Instant, numbers: NodeNumbers) -> None:
        """Say how the node is read, when that changes."""
        hello = Hello(
            v=1,
            t=0.0,
            host=node,
            probe="prometheus",
            cpu_count=next(filter(None, (reader.cpus.get(node) for reader in self._readers.values())), None),
            driver=numbers.driver or (self._greeted[node].driver if node in self._greeted else None),
        )
        if hello != self._greeted.get(node):
            if node not in self._greeted:
                for reader in self._readers.values():
                    reader.facts.pop(node, None)
            self._greeted[node] = hello
            self._submit_reading(node, at, replace(hello, t=at))
            self._troubles = {key: text for key, text in self._troubles.items() if key[0] != node}

    def _submit_reading(self, node: str, at: Instant, reading: AnyReading) -> None:
        self._submit(NodeReading(node, self._cluster, at, reading))

    # ---- what is missing ---------------------------------------------------------------------------------------------

    def _report_silence(self, name: str, reader: MetricsReader, node: str) -> None:
        """Report a node without a new sample: of this exporter, or of all."""
        program = reader.exporter.program
        known = {one.part: at for one in self._readers.values() if (at := one.latest.get(node)) is not None}
        if reader.part in known and not reader.is_silent(known[reader.part]):
            return
        others = [at for part, at in known.items() if part != reader.part and not reader.is_silent(at)]
        if others:
            if reader.part in known:
                text = f"no new samples of {program} in Prometheus"
                self._set_trouble(node, max(others), reader.part, text)
            return
        if any(one.part != reader.part and not one.times.failures and not one.latest for one in self._readers.values()):
            return  # another exporter has not been read yet
        what = "new samples" if known else "series"
        source = replace(self._node_source(name, node), phase="retrying")
        hint = f"is {program} up on {node}, and does the server scrape it?"
        self._submit_source(replace(source, error=f"Prometheus has no {what} of it", hint=hint))

    def _set_trouble(self, node: str, at: Instant, part: str, text: str | None) -> None:
        if text != self._troubles.get((node, part)):
            if text is None:
                del self._troubles[node, part]
            else:
                self._troubles[node, part] = text
            self._submit_reading(node, at, Trouble(v=1, t=at, part=part, text=text))

    def _ungreet(self, node: str) -> None:
        self._greeted.pop(node, None)
        self._sources.pop(f"node:{node}", None)

    def _forget(self, node: str) -> None:
        """A node is not in sight any more. If SSH has it, SSH reports its end."""
        if f"node:{node}" in self._sources and self._over_ssh(node) == OverSsh():
            self._submit(SourceRemoved(f"node:{node}"))
        self._ungreet(node)
        self._past_at.pop(node, None)
        for reader in self._readers.values():
            reader.latest.pop(node, None)
            reader.disks.pop(node, None)

    # ---- the past of a node ------------------------------------------------------------------------------------------

    def _read_past(self, node: str) -> None:
        now = self._clock.monotonic()
        if now - self._past_at.get(node, -HISTORY_EVERY) < HISTORY_EVERY:
            return
        self._past_at[node] = now
        for reader in self._readers.values():
            if reader.part == "gpu":
                try:
                    for past in reader.past(node):
                        self._submit(past)
                except QueryFailed as failure:
                    log.warning("the past of %s: %s", node, failure.message)

    def _report(self, name: str, reader: MetricsReader, **changes: Any) -> None:
        source = Source(name=name, kind="prometheus", cluster=self._cluster, period=reader.period)
        self._submit_source(replace(source, **changes))


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
