"""What every host reads is computed again when something changes, and only then."""

from __future__ import annotations

from msgspec.structs import replace

from collectors.assignment import WatchPlan
from collectors.nodes.collector import NodeCollector
from collectors.supervisor import Assignments
from trainmon.lib import SystemClock
from trainmon.model import Event, FileSpec, Spec
from trainmon.transport.shell import Shell


class Host(NodeCollector):
    """A host that keeps what it was told to read, and is never dialled."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "prod", self._dialled, self._sent, SystemClock(), python="python3")
        self.watched: list[Spec] = []

    def _dialled(self) -> Shell:
        raise AssertionError("nothing is dialled here")

    def _sent(self, event: Event) -> None:
        """Nobody listens."""

    def watch(self, spec: Spec, implied: frozenset[str], stand_in: Spec | None = None) -> None:
        self.watched.append(spec)


PLAN = WatchPlan(
    cluster="prod", hosts=("n1", "n2"), nodes=frozenset({"n1", "n2"}), period=2.0, node_disks=("/",), runs=()
)


def test_hosts_are_told_what_to_read_when_something_changes_and_only_then() -> None:
    nodes = {name: Host(name) for name in PLAN.hosts}
    assignments = Assignments()
    for _ in range(3):
        assignments.update((PLAN,), nodes, {}, frozenset())
    assert [len(node.watched) for node in nodes.values()] == [1, 1]

    status = FileSpec(id="status", pattern="/run/status.json")
    assignments.update((PLAN,), nodes, {"prod": (status,)}, frozenset())
    assert nodes["n1"].watched[-1].files == (status,)

    slower = replace(PLAN, period=5.0)
    assignments.update((slower,), nodes, {"prod": (status,)}, frozenset())
    assert nodes["n2"].watched[-1].period == 5.0

    nodes = {**nodes, "n2": Host("n2")}
    assignments.update((slower,), nodes, {"prod": (status,)}, frozenset())
    assert nodes["n2"].watched == [Spec(period=5.0, disks=("/",))]
    assert sorted(assignments.own_disks()) == [("n1", "/"), ("n2", "/")]
