"""Polls the metrics tables of a cluster, each on its own thread: a server that is slow delays no other table.

Their numbers become the readings of nodes, as a probe sends them. A node that is also connected to over SSH is read
there: that is newer. Its numbers from here are used when SSH fails.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import replace

from collectors.discovery import OverSsh
from collectors.polling_thread import PollingThread
from collectors.prometheus import query, readings
from collectors.prometheus.reader import MetricsReader, PrometheusClient, QueryFailed
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
    SourceChanged,
    SourceRemoved,
    Trouble,
    Xid,
)

# ---- what the tables of one cluster show of its nodes ----------------------------------------------------------------


class NodeReports:
    """Submits the nodes of one cluster. Each table calls it on its own thread, one at a time, and none while it waits
    for a server. `readers`: the tables, by source; `over_ssh`: what SSH does with a node."""

    def __init__(
        self,
        cluster: str,
        readers: Mapping[str, MetricsReader],
        over_ssh: Callable[[str], OverSsh],
        submit: Callable[[Event], None],
    ) -> None:
        self._cluster = cluster
        self._readers, self._over_ssh, self._submit = readers, over_ssh, submit
        self._lock = threading.Lock()
        self._sources: dict[str, Source] = {}
        """By node: the source that was submitted."""
        self._greeted: dict[str, Hello] = {}
        """By node that is read here: the Hello that was submitted."""
        self._troubles: dict[tuple[str, str], str] = {}
        """By node and part: the trouble that was submitted."""
        self._connected: queue.SimpleQueue[str] = queue.SimpleQueue()

    def connected(self, node: str) -> None:
        """SSH reads a node now, maybe not for long: after that, it is greeted from here again. Does not block."""
        self._connected.put(node)

    def expect(self, nodes: Collection[str]) -> None:
        """These nodes are in sight: each has a row before a server has answered."""
        with self._lock:
            for node in nodes:
                if node not in self._sources and not self._over_ssh(node).is_up:
                    self._submit_source(node, replace(self._source(next(iter(self._readers)), node), phase="waiting"))

    def read(self, name: str, nodes: Collection[str], found: Mapping[str, readings.NodeNumbers]) -> None:
        """A table has been read: of these nodes, it has the numbers that were found."""
        with self._lock:
            while not self._connected.empty():
                self._ungreet(self._connected.get())
            for node in nodes:
                self._submit_node(name, self._readers[name], node, found.get(node))

    def failed(self, name: str, why: str) -> None:
        """A table cannot be read: the nodes that another one still shows say why these numbers are late."""
        reader = self._readers[name]
        with self._lock:
            for node in reader.latest.keys() & self._greeted.keys():
                others = self._other_times(reader, node)
                if others and reader.is_silent(reader.latest[node]):
                    self._set_trouble(node, max(others), reader.part, f"Prometheus: {why}")

    def keep(self, name: str, nodes: Collection[str]) -> None:
        """Only these nodes are still in sight. If SSH has another one, SSH reports its end."""
        reader = self._readers[name]
        with self._lock:
            for node in {*self._sources, *self._greeted} - {*nodes}:
                if node in self._sources and self._over_ssh(node) == OverSsh():
                    self._submit(SourceRemoved(f"node:{node}"))
                self._ungreet(node)
            for node in {*reader.latest, *reader.disks} - {*nodes}:
                reader.latest.pop(node, None)
                reader.disks.pop(node, None)

    # ---- the numbers of one table, with the lock ---------------------------------------------------------------------

    def _submit_node(self, name: str, reader: MetricsReader, node: str, numbers: readings.NodeNumbers | None) -> None:
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
        self._submit_source(node, self._source(name, node))
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

    def _source(self, name: str, node: str) -> Source:
        """The source of a node that is read now, through the first of our sources that knows it."""
        via = next((other for other, reader in self._readers.items() if node in reader.latest), name)
        period = max(reader.period for reader in self._readers.values())
        return Source(name=f"node:{node}", kind="node", cluster=self._cluster, phase="up", via=via, period=period)

    def _readings(
        self, reader: MetricsReader, node: str, numbers: readings.NodeNumbers, at: Instant
    ) -> Sequence[AnyReading]:
        if reader.exporter.is_host:
            return [readings.host_sample(numbers, at, reader.tolerance), DiskSamples(v=1, t=at, d=reader.disks[node])]
        facts = readings.gpu_facts(numbers, reader.tolerance)
        has_changed = facts != reader.facts.get(node)
        reader.facts[node] = facts
        samples = GpuSamples(v=1, t=at, g=readings.gpu_samples(numbers, reader.tolerance))
        return [*([GpuFactsAll(v=1, t=at, g=facts)] if has_changed else []), samples]

    def _greet(self, node: str, at: Instant, numbers: readings.NodeNumbers) -> None:
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
        is_known = node in reader.latest
        if is_known and not reader.is_silent(reader.latest[node]):
            return
        others = self._other_times(reader, node)
        if others:
            if is_known:
                self._set_trouble(node, max(others), reader.part, f"no new samples of {program} in Prometheus")
            return
        if any(one.part != reader.part and not one.times.failures and not one.latest for one in self._readers.values()):
            return  # another exporter has not been read yet
        what = "new samples" if any(node in one.latest for one in self._readers.values()) else "series"
        source = replace(self._source(name, node), phase="retrying")
        hint = f"check that {program} is up on {node} and that the server scrapes it"
        self._submit_source(node, replace(source, error=f"Prometheus has no {what} of it", hint=hint))

    def _other_times(self, reader: MetricsReader, node: str) -> list[Instant]:
        """The times of the last samples that other tables have of a node, if it is not silent there."""
        found = (one.latest.get(node) for one in self._readers.values() if one is not reader)
        return [at for at in found if at is not None and not reader.is_silent(at)]

    def _set_trouble(self, node: str, at: Instant, part: str, text: str | None) -> None:
        if text != self._troubles.get((node, part)):
            if text is None:
                del self._troubles[node, part]
            else:
                self._troubles[node, part] = text
            self._submit_reading(node, at, Trouble(v=1, t=at, part=part, text=text))

    def _ungreet(self, node: str) -> None:
        self._greeted.pop(node, None)
        self._sources.pop(node, None)

    def _submit_source(self, node: str, source: Source) -> None:
        """Submit the source of a node if it has changed."""
        if source != self._sources.get(node):
            self._sources[node] = source
            self._submit(SourceChanged(source))


# ---- polls one metrics table of a cluster, on its own thread ---------------------------------------------------------

log = logging.getLogger(__name__)

HISTORY_EVERY: Seconds = 600.0
"""The past of a node is read at most so often, when its screen is opened."""

Nodes = Callable[[], Mapping[str, tuple[str, ...]]]
"""The nodes in sight, each with the paths whose disks are watched there."""


class TablePoller(PollingThread):
    """Polls the server of one table. `name` is its source; what it shows of nodes goes to `reports`."""

    stop_timeout: ClassVar[Seconds] = 0.15
    most_requests = None
    """The screen of each of many nodes may be opened while the server does not answer."""

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
        self.name, self._cluster, self.reader = name, cluster, reader
        self.found: Mapping[str, readings.NodeNumbers] = {}
        """The numbers of the last poll, by node."""
        self.nodes, self._reports = nodes, reports
        self._in_sight: Mapping[str, tuple[str, ...]] = {}
        self._past_at: dict[str, Seconds] = {}
        self._disks_past: set[tuple[str, str]] = set()
        """The disks whose past was read, by node and path."""
        self._disks_past_due: Seconds = -math.inf

    def start(self) -> None:
        self._report(phase="connecting")
        super().start()

    def refresh(self) -> None:
        self.reader.times.refresh(self._clock.monotonic())
        self._wake.set()

    def nodes_planned(self) -> None:
        """Other nodes may be in sight, such as those of a job that has started. Does not block."""
        self._wake.set()

    def view(self, node: str) -> None:
        """A person opened a node's screen: its plots need its past. Does not block."""
        self._request(partial(self._read_past, node))

    def step(self) -> Seconds:
        """Poll the server if it is due. Returns the seconds until the next call."""
        nodes, times = self.nodes(), self.reader.times
        if nodes.items() - self._in_sight.items():  # another node, or another of its disks
            times.refresh(self._clock.monotonic())
        self._in_sight = nodes
        self._reports.expect(nodes)
        if times.due_in(self._clock.monotonic()) <= 0:
            self._poll(nodes)
        self._read_past_of_disks()
        self._do_requests()
        self._reports.keep(self.name, nodes)
        for node in self._past_at.keys() - nodes.keys():
            del self._past_at[node]
        self._disks_past = {disk for disk in self._disks_past if disk[0] in nodes}
        return times.due_in(self._clock.monotonic())

    def _poll(self, nodes: Mapping[str, tuple[str, ...]]) -> None:
        reader, began = self.reader, self._clock.monotonic()
        if not nodes:  # no poll begins: the first node is read at once
            self._report(phase="off", hint="no node of its cluster is watched")
            reader.times.answered(began)
            return
        reader.times.begin(began)
        try:
            self.found = found = reader.read([*nodes], nodes)
        except Exception as failure:  # a bug must not end the polls silently: it becomes the source's error
            error = failure if isinstance(failure, QueryFailed) else None
            if error is None:
                log.exception("the metrics of %s", self.name)
                error = QueryFailed(f"{type(failure).__name__}: {failure}")
            reader.times.failed(began)
            retry_at = self._clock.now() + reader.times.interval
            self._report(phase="retrying", error=error.message, hint=error.hint or None, retry_at=retry_at)
            self._reports.failed(self.name, error.message)
            return
        reader.times.answered(began)
        newest = reader.ours(max(node.at for node in found.values()))
        self._report(phase="up", answered_at=newest, hint=reader.note or None)
        self._reports.read(self.name, nodes, found)

    def _read_past(self, node: str) -> None:
        now = self._clock.monotonic()
        if self.reader.part != "gpu" or now - self._past_at.get(node, -HISTORY_EVERY) < HISTORY_EVERY:
            return
        self._past_at[node] = now
        try:
            for past in self.reader.past(node):
                self._submit(past)
        except QueryFailed as failure:
            log.warning("the past of %s: %s", node, failure.message)

    def _read_past_of_disks(self) -> None:
        """Read the past of disks that are seen for the first time. A server that fails is asked again much later."""
        now, disks = self._clock.monotonic(), self.reader.disks
        if now < self._disks_past_due:
            return
        seen = {(node, disk.path) for node in self._in_sight for disk in disks.get(node, ()) if disk.mount}
        new = dict.fromkeys(node for node, _ in sorted(seen - self._disks_past))
        for some in query.chunks([*new]):
            if self._stopping.is_set():
                return
            try:
                for past in self.reader.past_of_disks(some):
                    self._submit(past)
            except QueryFailed as failure:
                log.warning("the history of the disks of %s cannot be read: %s", some[0], failure.message)
                self._disks_past_due = now + HISTORY_EVERY
                return
            self._disks_past |= {disk for disk in seen if disk[0] in some}

    def _report(self, **changes: Any) -> None:
        source = {"name": self.name, "kind": "prometheus", "cluster": self._cluster, "period": self.reader.period}
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
        make_client: Callable[[MetricsSettings, Callable[[], Instant]], PrometheusClient] = PrometheusClient,
    ) -> None:
        self.cluster = cluster
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
