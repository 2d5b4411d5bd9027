"""What every host reads now: computed again only when something has changed, since hundreds of hosts are asked twice a
second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from collectors.assignment import WatchPlan, assign_all, own_disks, with_followed
from collectors.nodes.collector import NodeCollector
from trainmon.model import FileSpec, LogSpec, Spec


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
