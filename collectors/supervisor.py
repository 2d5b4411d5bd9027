"""Starts and stops all collectors: one NodeCollector for every host of the settings and of the runs' jobs.

One thread ticks them and assigns the shared files to hosts. The pollers of queues and quotas have their own threads.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collectors.assignment import WatchPlan, assign, with_followed
from collectors.connections import ClusterConnections, Connections, is_local, local_hostname
from collectors.discovery import Coverage, OverSsh, RunDiscovery
from collectors.nodes.collector import NEEDS_A_STEP, NodeCollector
from collectors.nodes.steps import step_notice
from collectors.polling_thread import PollingThread
from collectors.quota import QuotaPoller, quota_pollers
from collectors.slurm.collector import MakePoller, Poller, Watched, clusters_of, polled_clusters
from collectors.slurm.poll import UnwatchedSince
from collectors.wandb.login import Credentials
from trainmon.config import ClusterSettings, ConnectSettings, ImplicitCluster, Settings
from trainmon.lib import Clock, HostUnreachable, Seconds, SystemClock, TrainmonError
from trainmon.model import (
    AnyReading,
    CheckpointListing,
    ClustersChanged,
    DisksChanged,
    DisksForgotten,
    Event,
    FileSpec,
    Job,
    LogSpec,
    NodeReading,
    RunsChanged,
    SourceChanged,
    SourceRemoved,
    Spec,
)
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop, raise_descriptor_limit
from trainmon.transport.shell import AskUser, LocalShell, Shell

if TYPE_CHECKING:  # it loads an HTTP client, which a config without metrics does not need
    from collectors.prometheus.collector import PrometheusPoller

log = logging.getLogger(__name__)

TICK = 0.5
REFRESH_EVERY = 5.0
"""Seconds between two refreshes that a person requests."""

SOON_EVERY: Seconds = 15.0
"""Seconds between two early polls of one source: its host may be overloaded already."""

KEEP_FOR: Seconds = 600.0
"""How long a node stays visible, as off, after its job."""

JOB_ENDED = "its job ended"


class Assignments:
    """The Specs of all hosts. The supervisor's thread calls `update`."""

    def __init__(self) -> None:
        self._specs: Mapping[str, Spec] = {}
        self._stand_in: Mapping[str, Spec] = {}
        """By host: what it reads now, and what it reads as a stand-in for another."""
        self._computed_from: tuple[object, ...] = ()

    def update(
        self,
        plans: tuple[WatchPlan, ...],
        nodes: Mapping[str, NodeCollector],
        files: Mapping[str, tuple[FileSpec | LogSpec, ...]],
        followed: frozenset[str],
    ) -> None:
        """Assign to every host what it reads, given the hosts that are up. `files` and `followed` as in Supervisor."""
        up = {host for host, node in nodes.items() if node.is_up and node.reads_files}
        awaited = {host for host, node in nodes.items() if node.is_awaited}
        inputs = (plans, nodes, files, followed, up, awaited)
        if inputs == self._computed_from:
            return
        plans = tuple(replace(plan, files=(*plan.files, *files.get(plan.cluster, ()))) for plan in plans)
        specs, stand_in = assign(plans, up, awaited)
        named = {disk for plan in plans for disk in (*plan.shared_disks, *plan.node_disks)}
        implied = frozenset(disk for plan in plans for disk in plan.implied_disks if disk not in named)
        for host, spec in specs.items():
            nodes[host].watch(with_followed(spec, followed), implied, stand_in.get(host))
        self._specs, self._stand_in, self._computed_from = specs, stand_in, inputs

    def own_disks(self) -> Iterator[tuple[str, str]]:
        """Each host with the paths that it reads for itself, not as a stand-in, which may log in as another user; from
        any thread."""
        specs, stand_in = self._specs, self._stand_in
        for host, spec in specs.items():
            others = stand_in[host].disks if host in stand_in else ()
            yield from ((host, path) for path in spec.disks if path not in others)


class Supervisor(PollingThread):
    """Runs the collectors of the settings. `ask` shows login prompts to a person; None: no person is there. `login`
    returns the credentials for W&B; `followed`, the checkpoint directories in which an action awaits a checkpoint;
    `files`, by cluster, the files of attempts to read; `unwatched_since`, since when some may have been missed.
    `on_reading` gets what a host has reported, as it is, on the event loop's thread."""

    most_requests = None

    def __init__(
        self,
        settings: Settings,
        submit: Callable[[Event], None],
        *,
        ask: AskUser | None,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
        make_queue: MakePoller = Poller,
        login: Callable[[], Credentials | None] = lambda: None,
        followed: Callable[[], Collection[str]] = frozenset,
        files: Callable[[], Mapping[str, tuple[FileSpec | LogSpec, ...]]] = dict,
        unwatched_since: UnwatchedSince = lambda: float("inf"),
        on_reading: Callable[[str, AnyReading], None] = lambda host, reading: None,
    ) -> None:
        super().__init__("supervisor", TICK, submit, clock or SystemClock())
        self._settings = settings
        self._followed, self._files = followed, files
        self._discovery = RunDiscovery(settings, login)
        self._coverage = Coverage(settings.clusters)
        self._assignments = Assignments()
        self.plans: tuple[WatchPlan, ...] = ()
        self._loop = EventLoop()
        self._local = LocalShell(self._loop, host=local_hostname())
        self._connect: Callable[[ClusterSettings], ClusterConnections] = lambda cluster: ClusterConnections(
            cluster,
            self._loop,
            ask,
            ssh_config,
            client_of=partial(self._slurm_client, cluster),
            part_of=self._discovery.own_part,
            on_start=lambda job: submit(step_notice(job)),
        )
        self.connections = {cluster.name: self._connect(cluster) for cluster in settings.clusters}
        self._ssh_config = ssh_config
        self._on_reading = on_reading
        self._silent = Connections(self._loop, ConnectSettings(), None, ssh_config)
        self._failures: dict[str, TrainmonError] = {}
        """For hosts that nobody has named: connections that prompt nobody, and by host why its only login failed."""
        self._unwatched_since = unwatched_since
        self._make_queue = make_queue
        self.queues: dict[str, Poller] = {}
        self._quotas: tuple[QuotaPoller, ...] = ()
        self.metrics: Mapping[str, PrometheusPoller] = {}
        self._pollers: tuple[PollingThread, ...] = ()
        self._make_pollers(frozenset())
        self._polled_soon_at: dict[str, Seconds] = {}
        self._hosts_lock = threading.Lock()
        """Held while the set of hosts changes: pollers of several clusters may report at once."""
        self.nodes: dict[str, NodeCollector] = {}
        """Replaced as a whole, never changed: other threads read it."""
        self._released_at: dict[str, Seconds] = {}
        """Since when a host has no job any more."""
        self._refreshed_at: Seconds = -REFRESH_EVERY

    def _make_pollers(self, same: Collection[str]) -> None:
        """The pollers of the settings. Of the `same` clusters, those that poll the same stay."""
        queues: dict[str, Poller] = {}
        for watched, cluster in polled_clusters(self._settings):
            old = self.queues.get(cluster.name) if cluster.name in same else None
            queues[cluster.name] = old if old is not None and old.watched == watched else self._queue(watched, cluster)
        self.queues = queues
        known = {poller.query: poller for poller in self._quotas if poller.query.cluster in same}
        made = quota_pollers(self._settings, self._readers_of, self.shell_of, self._submit, self._clock)
        self._quotas = tuple(known.get(poller.query, poller) for poller in made)
        self.metrics = self._metrics_pollers()
        tables = (table for poller in self.metrics.values() for table in poller.tables)
        self._pollers = (*self.queues.values(), *self._quotas, *tables)

    def _queue(self, watched: Watched, cluster: ClusterSettings) -> Poller:
        client, polled = partial(self._slurm_client, cluster), partial(self._polled, cluster.name)
        return self._make_queue(watched, client, self._submit, self._clock, polled, self._unwatched_since)

    def _metrics_pollers(self) -> Mapping[str, PrometheusPoller]:
        """The pollers of Prometheus servers, by cluster; those of a cluster that has not changed stay. Without a
        server, their HTTP client is not imported."""
        clusters = [cluster for cluster in self._settings.clusters if cluster.metrics]
        if not clusters:
            return {}
        from collectors.prometheus.collector import PrometheusPoller

        return {
            cluster.name: old
            if (old := self.metrics.get(cluster.name)) is not None and old.cluster == cluster
            else PrometheusPoller(
                cluster, partial(self._coverage.nodes, cluster.name), self._over_ssh, self._submit, self._clock
            )
            for cluster in clusters
        }

    def _over_ssh(self, host: str) -> OverSsh:
        """What SSH does with a host."""
        node = self.nodes.get(host)
        return OverSsh() if node is None else OverSsh(node.is_up, node.problem)

    def start(self) -> None:
        """Start all collectors; returns at once."""
        self._submit(ClustersChanged(clusters_of(self._settings, self.queues)))  # the scheduler adds more
        self._submit_settings()
        with self._hosts_lock:
            self._plan()
        self._assign()
        raise_descriptor_limit()
        self._loop.start()
        super().start()
        for poller in self._pollers:
            poller.start()

    def stop(self) -> None:
        """Stop all collectors; takes less than a second, whatever hangs."""
        with self._hosts_lock:  # a queue that reports from now on starts no collector
            self._stopping.set()
        self._wake.set()
        for node in self.nodes.values():
            node.stop()
        for connections in self.connections.values():
            connections.close()
        self._silent.close()
        self._local.close()
        for poller in self._pollers:  # their commands have just been ended
            poller.stop()
        self._loop.stop()

    def reload(self, settings: Settings) -> None:
        """Use other settings soon. A host stays connected while it is watched and is reached in the same way."""
        self._request(partial(self._reload, settings))

    def _reload(self, settings: Settings) -> None:
        before, pollers = {cluster.name: cluster for cluster in self._settings.clusters}, self._pollers
        now = {cluster.name: cluster for cluster in settings.clusters}
        same = {name for name in now.keys() & before.keys() if way_to(now[name]) == way_to(before[name])}
        with self._hosts_lock:
            self._settings = settings
            self._discovery.reload(settings, self._clock.now())
            self._coverage.reload(settings.clusters)
            for name in before.keys() - same:
                self.connections.pop(name).close()
            for name in now.keys() - same:
                self.connections[name] = self._connect(now[name])
            others = {host: node for host, node in self.nodes.items() if node.cluster not in same}
            self.nodes = {host: node for host, node in self.nodes.items() if host not in others}
            for node in others.values():
                node.stop()
            self._make_pollers(same)
            released = self._released_at.keys() - others.keys()
            self._released_at = {host: at for host, at in self._released_at.items() if host in released}
            self._plan()
            gone = (self._released_at.keys() - released) | (others.keys() - self.nodes.keys())
            for host in gone & self.nodes.keys():
                self.nodes[host].stop()
            self._released_at = {host: at for host, at in self._released_at.items() if host in released}
            self.nodes = {host: node for host, node in self.nodes.items() if host not in gone}
        new = [cluster for cluster in settings.clusters if cluster != before.get(cluster.name)]
        self._submit(
            ClustersChanged(
                clusters_of(replace(settings, clusters=tuple(new)), self.queues), tuple(before.keys() - now.keys())
            )
        )
        self._submit_settings()
        for host in gone:
            self._submit(SourceRemoved(f"node:{host}"))
        for poller in set(pollers) - set(self._pollers):
            poller.forget()
        for poller in set(self._pollers) - set(pollers):
            poller.start()

    def _submit_settings(self) -> None:
        disks = self._settings.disks
        self._submit(RunsChanged(self._discovery.runs))
        lags = {disk.path: disk.lag for disk in disks if disk.lag is not None}
        self._submit(DisksChanged({disk.path: disk.usable for disk in disks if disk.usable < 1}, lags))

    def refresh(self) -> None:
        """Redial hosts that wait for a retry, and poll the queues; at most every 5 s."""
        now = self._clock.monotonic()
        if now - self._refreshed_at >= REFRESH_EVERY:
            self._refreshed_at = now
            for node in self.nodes.values():
                node.refresh()
            for poller in self._pollers:
                poller.refresh()
            self._wake.set()

    def login(self, source: str) -> None:
        """Log in to one held host again."""
        node = self.nodes.get(source.removeprefix("node:"))
        if node is not None:
            node.login()
            self._wake.set()

    def shell_of(self, host: str) -> Shell:
        """The live connection of a watched host, or this machine; never a second login.

        Raises:
            HostUnreachable: when there is none, with the message of the host's row.
        """
        node = self.nodes.get(host)
        if node is not None and node.is_dialled:
            return node.shell
        if host == local_hostname():
            return self._local
        if self._coverage.cluster_of(host) is not None:
            why = f"{host} is read from Prometheus and not connected to"
            raise HostUnreachable(host, why, hint="open its screen: that connects to it")
        raise HostUnreachable(host, f"{host} is not watched", hint="add it to the config")

    def python_of(self, host: str) -> str:
        """The interpreter of the probe of a host; empty if it has none that works."""
        node = self.nodes.get(host)
        return "python3" if node is None else node.python

    def ssh_command(self, host: str) -> tuple[str, ...] | str:
        """The command that logs in to a host with the same settings as ours, or the sentence why there is none."""
        host = next((known for known in self.nodes if host in (known, known.rpartition("@")[2])), host)
        node = self.nodes.get(host)
        if not (node.is_dialled if node is not None else host != local_hostname()):
            return f"{host} is this machine"
        if node is not None and self.connections[node.cluster].needs_step(host, is_node=True):
            return f"{host} is reached by a step of a job, not over SSH"
        if shutil.which("ssh") is None:
            return "ssh is not installed on this machine"
        return ("ssh", *(("-F", str(self._ssh_config)) if self._ssh_config is not None else ()), "--", host)

    def poll_queue_soon(self, cluster: str) -> None:
        """Poll a cluster's queue soon: an action or a loss changes it."""
        if cluster in self.queues:
            self.queues[cluster].poll_soon()

    def poll_soon(self, source: str) -> None:
        """Poll a source early, at most every SOON_EVERY: its data looks suspicious."""
        kind, _, name = source.partition(":")
        now = self._clock.monotonic()
        if now - self._polled_soon_at.get(source, -SOON_EVERY) < SOON_EVERY:
            return
        self._polled_soon_at[source] = now
        if kind == "node" and name in self.nodes:
            self.nodes[name].refresh()
            self._wake.set()
        elif kind == "slurm":
            self.poll_queue_soon(name)
        else:
            for poller in self._quotas:
                if poller.has_source(source):
                    poller.refresh()

    def poll_job(self, key: str) -> None:
        """Request a job's details: a person views it. The key is `prod/88_3`."""
        cluster = key.partition("/")[0]
        if cluster in self.queues:
            self.queues[cluster].poll_job(key)

    def view_node(self, host: str) -> None:
        """A person looks at a node. One that Prometheus covers is connected to, and its past is read."""
        if self._coverage.view(host, self._clock.monotonic()):
            cluster = self._coverage.past_of(host)
            if cluster is not None and cluster in self.metrics:
                self.metrics[cluster].view(host)
            self._wake.set()

    # ---- the thread --------------------------------------------------------------------------------------------------

    def step(self) -> Seconds:
        """Advance the nodes, and assign the shared files to hosts."""
        self._do_requests()
        self._remove_old()
        if self._coverage.has_changed(self._clock.monotonic()):
            with self._hosts_lock:
                self._plan()
        self._assign()
        for node in self.nodes.values():
            try:
                node.tick()
            except Exception:  # for example, no more threads: this host waits for its next tick
                log.exception("the tick of %s failed", node.name)
        return TICK

    def _assign(self) -> None:
        """Assign to every host what it reads, given the hosts that are up."""
        with self._hosts_lock:
            plans, nodes = self.plans, self.nodes
        self._assignments.update(plans, nodes, self._files(), frozenset(self._followed()))

    def named_disks(self) -> frozenset[tuple[str, str]]:
        """The configured paths that hosts read for themselves, each with its host; from any thread. Readings of a
        stand-in may be discarded, so nothing can wait for them."""
        named = {path for plan in self.plans for path in (*plan.shared_disks, *plan.node_disks)}
        return frozenset((host, path) for host, path in self._assignments.own_disks() if path in named)

    def _readers_of(self, cluster: str, path: str) -> list[str]:
        """The hosts of a cluster that are up and read a path for themselves. Called on the quota threads."""
        up = {host for host, node in self.nodes.items() if node.cluster == cluster and node.is_up}
        return [host for host, own in self._assignments.own_disks() if own == path and host in up]

    # ---- the set of hosts ------------------------------------------------------------------------------

    def _polled(self, cluster: str, jobs: tuple[Job, ...], me: str) -> None:
        """Handle a poll of a queue, on its poller's thread."""
        with self._hosts_lock:
            if self._stopping.is_set():
                return
            before = self._discovery.nodes(cluster)
            has_changed = self._discovery.update(cluster, jobs, me or None, self._clock.now())
            if has_changed:
                self._submit(RunsChanged(self._discovery.runs))
            if has_changed or self._discovery.nodes(cluster) != before:
                self._plan()
        for node in self.nodes.values():
            if node.cluster == cluster:
                node.queue_polled()
                if node.backoff.may_log_in_again():
                    node.login()
        self._wake.set()

    def _received(self, event: Event) -> None:
        """Submit an event of a host. Our own thread takes over what it tells about the runs."""
        if isinstance(event, SourceChanged) and self._coverage.hides(event.source):
            return
        self._submit(event)
        if isinstance(event, SourceChanged) and event.source.phase == "up":
            for poller in self._quotas:
                poller.host_is_up()
            if event.source.cluster in self.metrics:
                self.metrics[event.source.cluster].connected(event.source.name.removeprefix("node:"))
        if isinstance(event, NodeReading) and self._discovery.is_relevant(event.node, event.reading):
            self._request(partial(self._learn, event))

    def _learn(self, event: NodeReading) -> None:
        with self._hosts_lock:
            if self._stopping.is_set() or not self._discovery.read(event.reading, event.received_at):
                return
            self._submit(RunsChanged(self._discovery.runs))
            self._plan()
        node = self.nodes.get(event.node)
        if isinstance(event.reading, CheckpointListing) and node is not None and node.is_up:
            self._submit(event)  # it came before the run was known to save there

    def _plan(self) -> None:
        """Start collectors for new hosts, and release those that are not needed."""
        plans = tuple(
            self._coverage.limited(self._discovery.plan(cluster), self._discovery.nodes(cluster.name))
            for cluster in self._settings.clusters
        )
        nodes = dict(self.nodes)
        for cluster, plan in zip(self._settings.clusters, plans, strict=True):
            for host in plan.hosts:
                if host not in nodes:  # it may belong to another cluster too
                    nodes[host] = self._make_node(cluster, host, is_node=host in plan.nodes)
                elif host in self._released_at:
                    nodes[host].resume()
        wanted = {host for plan in plans for host in plan.hosts}
        now = self._clock.monotonic()
        for host in [host for host in nodes.keys() - wanted if self._coverage.cluster_of(host) is not None]:
            nodes.pop(host).stop()
            disks = frozenset().union(*(poller.disks(host) for poller in self.metrics.values()))
            self._submit(DisksForgotten(host, disks))
        for host in nodes.keys() - wanted - self._released_at.keys():
            nodes[host].release(JOB_ENDED)
        self._released_at = {host: self._released_at.get(host, now) for host in nodes.keys() - wanted}
        self.nodes, self.plans = nodes, plans
        for poller in self.metrics.values():
            poller.nodes_planned()

    def _make_node(self, cluster: ClusterSettings, host: str, *, is_node: bool) -> NodeCollector:
        local, connections = is_local(cluster, host), self.connections[cluster.name]
        dial = connections.dialler(host, is_node=is_node)
        python = sys.executable if local else cluster.python
        node = NodeCollector(host, cluster.name, dial, self._received, self._clock, python=python)
        if isinstance(cluster, ImplicitCluster) and not local:
            node.first_dial, node.failures = partial(self._silent.dial, host), self._failures
        node.is_dialled = not local
        node.on_refusal = partial(connections.has_refused, host)
        node.on_retry = partial(connections.ssh.forget, host)
        node.wake = self._wake.set
        node.on_reading = partial(self._on_reading, host)
        if is_node and host != cluster.login and not local:
            node.backoff.has_own_job = partial(self._discovery.has_own_job, cluster.name, host)
            # It may explain a lost connection. The node holds its lock then, so our own thread asks for the poll.
            node.backoff.poll_queue = partial(self._request, partial(self.poll_queue_soon, cluster.name))
        if connections.needs_step(host, is_node=is_node):
            node.backoff.requirement = NEEDS_A_STEP
        return node

    def _remove_old(self) -> None:
        """Remove nodes some time after their last job."""
        now = self._clock.monotonic()
        with self._hosts_lock:
            old = [host for host, since in self._released_at.items() if now - since >= KEEP_FOR]
            for host in old:
                self.nodes[host].stop()
                self._submit(SourceRemoved(f"node:{host}"))
                del self._released_at[host]
            if old:
                self.nodes = {host: node for host, node in self.nodes.items() if host not in old}

    def _slurm_client(self, cluster: ClusterSettings) -> Client:
        return Client(self._local if cluster.login is None else self.shell_of(cluster.login))


def way_to(cluster: ClusterSettings) -> tuple[object, ...]:
    """How the hosts of a cluster are reached. With another way, they are connected to again."""
    return type(cluster), cluster.login, cluster.connect, cluster.python
