"""What the tables of one cluster show of its nodes: their numbers become the readings of a node, as a probe sends them.

Here is also which nodes Prometheus covers, and which of them are connected to over SSH, too.

A node that is also connected to over SSH is read there: that is newer. Its numbers from here are used when SSH fails.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from collectors.assignment import WatchPlan, disks_of_nodes
from collectors.prometheus import readings
from collectors.prometheus.readings import NodeNumbers
from trainmon.config import ClusterSettings
from trainmon.lib import Instant, Seconds
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

if TYPE_CHECKING:  # it loads an HTTP client, which a command without metrics does not need
    from collectors.prometheus.reader import MetricsReader

# ---- what the tables of one cluster show of its nodes ----------------------------------------------------------------


class OverSsh(NamedTuple):
    """What SSH does with a node: whether it reads it now, and its error."""

    is_up: bool = False
    problem: str | None = None


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

    def read(self, name: str, nodes: Collection[str], found: Mapping[str, NodeNumbers]) -> None:
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
        is_known = node in reader.latest
        if is_known and not reader.is_silent(reader.latest[node]):
            return
        others = self._other_times(reader, node)
        if others:
            if is_known:
                text = f"no new samples of {program} in Prometheus"
                self._set_trouble(node, max(others), reader.part, text)
            return
        if any(one.part != reader.part and not one.times.failures and not one.latest for one in self._readers.values()):
            return  # another exporter has not been read yet
        what = "new samples" if any(node in one.latest for one in self._readers.values()) else "series"
        source = replace(self._source(name, node), phase="retrying")
        hint = f"is {program} up on {node}, and does the server scrape it?"
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


# ---- which nodes Prometheus covers, and which of them are connected to over SSH, too ---------------------------------

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
