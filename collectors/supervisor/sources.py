"""What a supervisor reads from: hosts, what each is to read, and pollers with a thread of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collectors.assignment import WatchPlan, assign_all, own_disks, with_followed
from collectors.connections import ClusterConnections, Connections, is_local
from collectors.discovery import RunDiscovery
from collectors.nodes.backoff import NEEDS_A_STEP
from collectors.nodes.collector import NodeCollector
from collectors.nodes.steps.shell import step_notice
from collectors.polling_thread import PollingThread
from collectors.prometheus.nodes import Coverage
from collectors.quota.collector import QuotaPoller
from collectors.slurm.collector import Poller
from trainmon.config import ClusterSettings, ConnectSettings, ImplicitCluster, Settings
from trainmon.lib import Clock, Seconds, TrainmonError
from trainmon.model import Event, FileSpec, LogSpec, Spec
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser

if TYPE_CHECKING:
    from collectors.prometheus.collector import PrometheusPoller

# ---- what every host reads now ---------------------------------------------------------------------------------------


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
        specs, stand_in = assign_all(plans, up, awaited)
        named = {disk for plan in plans for disk in (*plan.shared_disks, *plan.node_disks)}
        implied = frozenset(disk for plan in plans for disk in plan.implied_disks if disk not in named)
        for host, spec in specs.items():
            nodes[host].watch(with_followed(spec, followed), implied, stand_in.get(host))
        self._specs, self._stand_in, self._computed_from = specs, stand_in, inputs

    def own_disks(self) -> Iterator[tuple[str, str]]:
        """Each host with the paths that it reads for itself; from any thread."""
        return own_disks(self._specs, self._stand_in)


# ---- how each host is reached ----------------------------------------------------------------------------------------


class Hosts:
    """Makes the NodeCollector of a host, on the connections of its cluster. `ask` shows login prompts to a person;
    `client_of` returns the Slurm client of a cluster, and raises HostUnreachable without its login node."""

    def __init__(
        self,
        clusters: Sequence[ClusterSettings],
        loop: EventLoop,
        discovery: RunDiscovery,
        clock: Clock,
        submit: Callable[[Event], None],
        *,
        ask: AskUser | None,
        ssh_config: Path | None,
        client_of: Callable[[ClusterSettings], Client],
    ) -> None:
        self._discovery = discovery
        self._clock = clock
        self._connections = {
            cluster.name: ClusterConnections(
                cluster,
                loop,
                ask,
                ssh_config,
                client_of=partial(client_of, cluster),
                part_of=discovery.own_part,
                on_start=lambda job: submit(step_notice(job)),
            )
            for cluster in clusters
        }
        self._silent = Connections(loop, ConnectSettings(), None, ssh_config)
        self._failures: dict[str, TrainmonError] = {}
        """For hosts that nobody has named: connections that prompt nobody, and by host why its only login failed."""

    def make(
        self,
        cluster: ClusterSettings,
        host: str,
        *,
        is_node: bool,
        received: Callable[[Event], None],
        wake: Callable[[], None],
        poll_queue: Callable[[], None],
    ) -> NodeCollector:
        """The collector of a host. `received` gets its events, `wake` is called when it came up or was lost, and
        `poll_queue` when the queue may explain why."""
        local = is_local(cluster, host)
        connections = self._connections[cluster.name]
        dial = connections.dialler(host, is_node=is_node)
        python = sys.executable if local else cluster.python
        node = NodeCollector(host, cluster.name, dial, received, self._clock, python=python)
        if isinstance(cluster, ImplicitCluster) and not local:
            node.first_dial, node.failures = partial(self._silent.dial, host), self._failures
        node.is_dialled = not local
        node.on_refusal = partial(connections.has_refused, host)
        node.wake = wake
        if is_node and host != cluster.login and not local:
            node.backoff.has_own_job = partial(self._discovery.has_own_job, cluster.name, host)
            node.backoff.poll_queue = poll_queue
        if connections.needs_step(host, is_node=is_node):
            node.backoff.requirement = NEEDS_A_STEP
        return node

    def close(self) -> None:
        """Close all connections; waits a moment for the end of the steps."""
        for connections in self._connections.values():
            connections.close()
        self._silent.close()


# ---- the pollers of a supervisor, each with a thread of its own ------------------------------------------------------

SOON_EVERY: Seconds = 15.0
"""Seconds between two early polls of one source: its host may be overloaded already."""


class Pollers:
    """The pollers of queues and of Prometheus servers, by cluster, and those of quotas. No method blocks."""

    def __init__(
        self,
        queues: Mapping[str, Poller],
        quotas: Sequence[QuotaPoller],
        metrics: Mapping[str, PrometheusPoller],
        clock: Clock,
    ) -> None:
        self.queues = queues
        self._quotas = quotas
        self._metrics = metrics
        self._all: tuple[PollingThread | PrometheusPoller, ...] = (*queues.values(), *quotas, *metrics.values())
        self._clock = clock
        self._polled_soon_at: dict[str, Seconds] = {}

    def start(self) -> None:
        for poller in self._all:
            poller.start()

    def stop(self) -> None:
        for poller in self._all:
            poller.stop()

    def refresh(self) -> None:
        """Poll everything: a person requests it."""
        for poller in self._all:
            poller.refresh()

    def may_poll_soon(self, source: str) -> bool:
        """Whether a source may be polled early; if so, that counts as such a poll."""
        now = self._clock.monotonic()
        if now - self._polled_soon_at.get(source, -SOON_EVERY) < SOON_EVERY:
            return False
        self._polled_soon_at[source] = now
        return True

    def poll_soon(self, source: str) -> None:
        """Poll the queue or the quota of a source."""
        kind, _, name = source.partition(":")
        if kind == "slurm":
            self.poll_queue(name)
        elif kind == "quota":
            for poller in self._quotas:
                if poller.has_source(source):
                    poller.refresh()

    def poll_queue(self, cluster: str) -> None:
        if cluster in self.queues:
            self.queues[cluster].poll_soon()

    def poll_job(self, key: str) -> None:
        """Request a job's details. The key is `prod/88_3`."""
        cluster = key.partition("/")[0]
        if cluster in self.queues:
            self.queues[cluster].poll_job(key)

    def read_past(self, cluster: str | None, node: str) -> None:
        """Read the last day of a node from the Prometheus server of its cluster."""
        if cluster is not None and cluster in self._metrics:
            self._metrics[cluster].view(node)

    def disks_of(self, node: str) -> frozenset[str]:
        """The paths whose disks a Prometheus server has."""
        return frozenset().union(*(poller.disks(node) for poller in self._metrics.values()))

    def nodes_planned(self) -> None:
        """Other nodes may be in sight."""
        for poller in self._metrics.values():
            poller.nodes_planned()

    def connected(self, cluster: str, node: str) -> None:
        """SSH reads a node now. Does not block."""
        if cluster in self._metrics:
            self._metrics[cluster].connected(node)


def metrics_pollers(
    settings: Settings,
    coverage: Coverage,
    over_ssh: Callable[[str], tuple[bool, str | None]],
    submit: Callable[[Event], None],
    clock: Clock,
) -> Mapping[str, PrometheusPoller]:
    """The pollers of Prometheus servers, by cluster. Without a server, their HTTP client is not imported."""
    clusters = [cluster for cluster in settings.clusters if cluster.metrics]
    if not clusters:
        return {}
    from collectors.prometheus.collector import prometheus_pollers
    from collectors.prometheus.nodes import OverSsh

    return prometheus_pollers(clusters, coverage.nodes, lambda host: OverSsh(*over_ssh(host)), submit, clock)
