"""Starts and stops all collectors: one NodeCollector for every host of the settings and of the runs' jobs.

One thread ticks them and assigns the shared files to hosts. The pollers of queues and quotas have their own threads."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from collectors.assignment import WatchPlan, assign, merge, stand_in_specs
from collectors.connections import Connections, is_local, local_hostname
from collectors.discovery import RunDiscovery
from collectors.nodes.collector import NodeCollector
from collectors.quota.collector import QuotaCollector
from collectors.slurm.collector import Poller
from collectors.slurm.pollers import MakeQueue, SlurmPollers
from collectors.targets import configured_cluster, disks_changed, watch_plan
from trainmon.config import ClusterSettings, Settings
from trainmon.lib import Clock, HostUnreachable, Seconds, SystemClock
from trainmon.model import ClustersChanged, Event, Job, RunsChanged, SourceRemoved, Spec
from trainmon.transport.event_loop import EventLoop, raise_descriptor_limit
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import AskUser, Shell

log = logging.getLogger(__name__)

TICK = 0.5
REFRESH_EVERY = 5.0
"""Seconds between two refreshes that a person requests."""

HURRY_EVERY: Seconds = 15.0
"""Seconds between two early polls of one source: its host may be overloaded already."""

KEEP_FOR: Seconds = 600.0
"""How long a node stays visible, as off, after its job."""

JOB_ENDED = "its job ended"


class Supervisor:
    """Runs the collectors of the settings. `ask` puts login questions to a person; None: nobody can be asked."""

    def __init__(
        self,
        settings: Settings,
        submit: Callable[[Event], None],
        *,
        ask: AskUser | None,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
        make_queue: MakeQueue = Poller,
    ) -> None:
        self._submit = submit
        self._clock = clock or SystemClock()
        self._loop = EventLoop()
        self._local = LocalShell(self._loop, host=local_hostname())
        self._settings = settings
        self._discovery = RunDiscovery(settings)
        self._plans: tuple[WatchPlan, ...] = ()
        self._connections = {
            cluster.name: Connections(self._loop, cluster.connect, ask, ssh_config) for cluster in settings.clusters
        }
        self._queues = SlurmPollers(settings, self._shell_of_cluster, submit, self._clock, self._polled, make_queue)
        self._specs: dict[str, Spec] = {}
        """By host: what it reads now."""
        self._stand_in: dict[str, Spec] = {}
        """By host: what it reads as a stand-in for another."""
        self._quotas = QuotaCollector(settings, self._readers_of, self.shell_of, submit, self._clock)
        self._hosts_lock = threading.Lock()
        """Held while the set of hosts changes: pollers of several clusters may report at once."""
        self._nodes: dict[str, NodeCollector] = {}
        """Replaced as a whole, never changed: other threads read it."""
        self._released_at: dict[str, Seconds] = {}
        """Since when a host has no job any more."""
        self._hurried: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = False
        self._refreshed_at: Seconds = -REFRESH_EVERY
        self._hurried_at: dict[str, Seconds] = {}
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start all collectors; returns at once."""
        self._submit(ClustersChanged(tuple(configured_cluster(cluster) for cluster in self._settings.clusters)))
        self._submit(RunsChanged(self._discovery.runs))
        self._submit(disks_changed(self._settings))
        with self._hosts_lock:
            self._plan()
        self._assign()
        self._thread.start()
        self._queues.start()
        self._quotas.start()

    def stop(self) -> None:
        """Stop all collectors; takes less than a second, whatever hangs."""
        with self._hosts_lock:  # a queue that reports from now on starts no collector
            self._stopping = True
        self._wake.set()
        for node in self._nodes.values():
            node.stop()
        for connections in self._connections.values():
            connections.close()
        self._local.close()
        self._queues.stop()  # their commands have just been ended
        self._quotas.stop()
        self._loop.stop()

    def refresh(self) -> None:
        """Redial hosts that wait for a retry, and poll the queues; at most every 5 s."""
        now = self._clock.monotonic()
        if now - self._refreshed_at >= REFRESH_EVERY:
            self._refreshed_at = now
            for node in self._nodes.values():
                node.refresh()
            self._queues.refresh()
            self._quotas.refresh()
            self._wake.set()

    def login(self, source: str) -> None:
        """Log in to one held host again."""
        node = self._nodes.get(source.removeprefix("node:"))
        if node is not None:
            node.login()
            self._wake.set()

    def shell_of(self, host: str) -> Shell:
        """The live connection of a watched host, or this machine; never a second login.

        Raises:
            HostUnreachable: when there is none, with the message of the host's row.
        """
        node = self._nodes.get(host)
        if node is not None and node.is_dialled:
            return node.shell
        if host == local_hostname():
            return self._local
        raise HostUnreachable(host, f"{host} is not watched", hint="add it to the config")

    def hurry_slurm(self, cluster: str) -> None:
        """Poll the queue soon: an action changed it."""
        self._queues.hurry(cluster)

    def hurry(self, source: str) -> None:
        """Poll a source early, at most every HURRY_EVERY: its data looks suspicious."""
        now = self._clock.monotonic()
        if now - self._hurried_at.get(source, -HURRY_EVERY) < HURRY_EVERY:
            return
        self._hurried_at[source] = now
        kind, _, name = source.partition(":")
        node = self._nodes.get(name)
        if kind == "slurm":
            self._queues.hurry(name)
        elif kind == "quota":
            self._quotas.hurry(source)
        elif kind == "node" and node is not None:
            node.refresh()
            self._wake.set()

    def look_at_job(self, key: str) -> None:
        """Request a job's details: a person opened it."""
        self._queues.look_at(key)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        raise_descriptor_limit()
        self._loop.start()
        while not self._stopping:
            for node in self._nodes.values():
                self._tick(node)
            self._wake.wait(TICK)
            self._wake.clear()
            while not self._hurried.empty():  # queues that may explain a lost connection
                self._queues.hurry(self._hurried.get())
            self._remove_old()
            self._assign()

    @staticmethod
    def _tick(node: NodeCollector) -> None:
        try:
            node.tick()
        except Exception:  # for example, no more threads: this host waits for its next tick, the others continue
            log.exception("the tick of %s failed", node.name)

    def _assign(self) -> None:
        """Assign to every host what it reads, given the hosts that are up."""
        specs: dict[str, Spec] = {}
        stand_in: dict[str, Spec] = {}
        implied: set[str] = set()
        named: set[str] = set()
        plans, nodes = self._plans, self._nodes  # in this order: the collectors of a newer plan exist by then
        for plan in plans:
            up = {host for host in plan.hosts if nodes[host].is_up and nodes[host].reads_files}
            implied.update(plan.implied_disks)
            named.update((*plan.shared_disks, *plan.node_disks))
            is_awaited = bool(plan.hosts) and nodes[plan.hosts[0]].is_awaited
            _add(specs, assign(plan, up, is_awaited=is_awaited))
            _add(stand_in, stand_in_specs(plan, up, is_awaited=is_awaited))
        for host, spec in specs.items():
            nodes[host].watch(spec, frozenset(implied - named), stand_in.get(host))
        self._specs, self._stand_in = specs, stand_in

    def named_disks(self) -> frozenset[tuple[str, str]]:
        """The configured paths that hosts read for themselves, each with its host; from any thread. Readings of a
        stand-in may be discarded, so nobody can wait for them."""
        named = {path for plan in self._plans for path in (*plan.shared_disks, *plan.node_disks)}
        specs, stand_in = self._specs, self._stand_in
        return frozenset(
            (host, path)
            for host, spec in specs.items()
            for path in spec.disks
            if path in named and not (host in stand_in and path in stand_in[host].disks)
        )

    def _readers_of(self, cluster: str, path: str) -> list[str]:
        """The hosts of a cluster that are up and read a path for themselves: a stand-in may log in as another user.
        Called on the quota threads."""
        nodes, stand_in = self._nodes, self._stand_in
        return [
            host
            for host, spec in self._specs.items()
            if path in spec.disks
            and host in nodes
            and nodes[host].cluster == cluster
            and nodes[host].is_up
            and not (host in stand_in and path in stand_in[host].disks)
        ]

    # ---- the set of hosts ------------------------------------------------------------------------------

    def _polled(self, cluster: str, jobs: tuple[Job, ...], me: str) -> None:
        """Handle a poll of a queue, on its poller's thread."""
        with self._hosts_lock:
            if self._stopping:
                return
            before = self._discovery.nodes(cluster)
            has_changed = self._discovery.seen(cluster, jobs, me or None, self._clock.now())
            if has_changed:
                self._submit(RunsChanged(self._discovery.runs))
            if has_changed or self._discovery.nodes(cluster) != before:
                self._plan()
        for node in self._nodes.values():
            if node.cluster == cluster:
                node.queue_polled()
                if node.backoff.may_log_in_again():
                    node.login()
        self._wake.set()

    def _plan(self) -> None:
        """Start collectors for new hosts, and release those that are not needed."""
        runs = self._discovery.runs
        plans = tuple(
            watch_plan(self._settings, cluster, runs, self._discovery.nodes(cluster.name))
            for cluster in self._settings.clusters
        )
        nodes = dict(self._nodes)
        for cluster, plan in zip(self._settings.clusters, plans, strict=True):
            for host in plan.hosts:
                if host not in nodes:  # it may belong to another cluster too
                    nodes[host] = self._make_node(cluster, host, host in plan.nodes)
                elif host in self._released_at:
                    nodes[host].resume()
        wanted = {host for plan in plans for host in plan.hosts}
        now = self._clock.monotonic()
        for host in nodes.keys() - wanted - self._released_at.keys():
            nodes[host].release(JOB_ENDED)
        self._released_at = {host: self._released_at.get(host, now) for host in nodes.keys() - wanted}
        self._nodes, self._plans = nodes, plans

    def _make_node(self, cluster: ClusterSettings, host: str, is_node: bool) -> NodeCollector:
        local = is_local(cluster, host)
        dial = partial(LocalShell, self._loop) if local else partial(self._connections[cluster.name].dial, host)
        python = sys.executable if local else cluster.python
        node = NodeCollector(host, cluster.name, dial, self._submit, self._clock, python=python)
        node.is_dialled = not local
        node.wake = self._wake.set
        if is_node and host != cluster.login and not local:
            node.backoff.is_ours = partial(self._discovery.is_ours, cluster.name, host)
            node.backoff.ask_queue = partial(self._ask_queue, cluster.name)
        return node

    def _ask_queue(self, cluster: str) -> None:
        """Request a poll of the queue. A NodeCollector's lock is held, so our own thread does it."""
        self._hurried.put(cluster)
        self._wake.set()

    def _remove_old(self) -> None:
        """Remove nodes some time after their last job."""
        now = self._clock.monotonic()
        if not any(now - since >= KEEP_FOR for since in self._released_at.values()):
            return
        with self._hosts_lock:
            gone = [host for host, since in self._released_at.items() if now - since >= KEEP_FOR]
            nodes = {host: node for host, node in self._nodes.items() if host not in gone}
            for host in gone:
                self._nodes[host].stop()
                self._submit(SourceRemoved(f"node:{host}"))
                del self._released_at[host]
            self._nodes = nodes

    def _shell_of_cluster(self, cluster: ClusterSettings) -> Shell:
        """The shell for a cluster's scheduler commands."""
        return self._local if cluster.login is None else self.shell_of(cluster.login)


def _add(specs: dict[str, Spec], more: Mapping[str, Spec]) -> None:
    """Add the specs of another cluster, which may share hosts with this one."""
    for host, spec in more.items():
        specs[host] = merge(specs[host], spec) if host in specs else spec
