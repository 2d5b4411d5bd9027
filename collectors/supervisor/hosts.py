"""The hosts that are connected to, what each is to read, and the pollers beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from collectors.assignment import WatchPlan, assign_all, own_disks, with_followed
from collectors.connections import ClusterConnections, Connections, is_local
from collectors.discovery import RunDiscovery
from collectors.nodes.backoff import NEEDS_A_STEP
from collectors.nodes.collector import NodeCollector
from collectors.nodes.steps.shell import step_notice
from trainmon.config import ClusterSettings, ConnectSettings, ImplicitCluster
from trainmon.lib import Clock, TrainmonError
from trainmon.model import Event, FileSpec, LogSpec, Spec
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser

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
