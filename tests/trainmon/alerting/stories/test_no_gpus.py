"""A GPU node that was never seen with a GPU: told within a minute, with what says that it should have some."""

from __future__ import annotations

from tests.trainmon.alerting.stories.test_real_rules import Cluster
from trainmon.alerting.rules import RULES
from trainmon.model import Hello, HostSample, NodeReading, SchedulerNode, SchedulerNodesListed


class Site(Cluster):
    """gpu-001 is well; the others list no GPU from the start. Slurm has eight in each that it calls gpu-."""

    def __init__(self, *others: str, notes: dict[str, str] | None = None, drained: tuple[str, ...] = ()) -> None:
        self.notes, self.drained = notes or {}, drained
        super().__init__(1, tuple(rule() for rule in RULES))
        self.nodes += others
        self.begin()

    def begin(self) -> None:
        at = self.clock.wall
        self.speak("slurm:prod")
        self.hear(SchedulerNodesListed("prod", at, tuple(self.scheduled(name, at) for name in self.nodes)))
        for name in self.nodes[1:]:
            hello = Hello(1, at, name, probe="none", note=self.notes.get(name))
            self.hear(NodeReading(name, "prod", at, hello))

    def scheduled(self, name: str, at: float) -> SchedulerNode:
        return SchedulerNode(
            name=name,
            cluster="prod",
            state="ALLOCATED" if name == "gpu-001" else "IDLE",
            flags=("DRAIN",) if name in self.drained else (),
            reason="driver update" if name in self.drained else None,
            reason_at=at - 90_000 if name in self.drained else None,
            gres="gpu:h100:8(S:0-1)" if name.startswith("gpu-") else None,
        )

    def samples(self, name: str) -> list[NodeReading]:
        if name == "gpu-001":
            return super().samples(name)
        at = self.clock.wall + 2.0
        return [NodeReading(name, "prod", at, HostSample(1, at, load1=1.0, memory_total_mib=2_000_000))]


def test_a_gpu_node_whose_driver_never_started_is_code_red_within_a_minute() -> None:
    with Site("gpu-002", notes={"gpu-002": "NVML: Driver/library version mismatch"}) as story:
        story.talk(60)
        notice = story.expect("fire", "node:gpu-002")
        assert notice.severity == "critical"
        assert notice.alerts[0].summary == (
            "no GPU of gpu-002 can be read: Slurm counts gpu:8, NVML lists none: Driver/library version mismatch"
        )
        story.talk(1_800)


def test_login_hosts_and_cpu_nodes_stay_calm() -> None:
    with Site("login1", "cpu-001", notes={"login1": "NVML: Driver Not Loaded"}) as story:
        story.talk(1_800)


def test_a_node_whose_driver_is_being_installed_wakes_nobody() -> None:
    with Site("gpu-002", drained=("gpu-002",)) as story:
        story.talk(60)
        assert story.expect("fire", "node:gpu-002").severity == "warning"
        story.talk(1_800)
