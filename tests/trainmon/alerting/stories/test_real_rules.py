"""The rules as they are, on what probes say: from a sample to the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import pytest

from tests.trainmon.alerting.rules.asked import findings
from tests.trainmon.alerting.stories.story import Story, phone
from trainmon.alerting.rules import RULES, Rule
from trainmon.model import (
    DiskSample,
    DiskSamples,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    LogChunk,
    NodeReading,
    RunsChanged,
    RunSpec,
    State,
    Xid,
)

EIGHT = tuple(range(8))
XID_79 = "NVRM: Xid (PCI:0000:4f:00): 79, GPU has fallen off the bus."


class Cluster(Story):
    """Nodes of eight GPUs that speak every two seconds, with all rules on."""

    def __init__(self, nodes: int, rules: Sequence[Rule] = ()) -> None:
        self.nodes = [f"gpu-{number:03}" for number in range(1, nodes + 1)]
        self.cut_off: set[str] = set()
        self.lost: dict[str, tuple[int, ...]] = {}
        super().__init__(*(rules or tuple(rule() for rule in RULES)), phone("warning"), sources=())

    def talk(self, until: float) -> Self:
        """Let time pass, with a sample of each node that can be reached every two seconds."""
        while self.elapsed < until - 1e-6:
            for name in self.nodes:
                if name not in self.cut_off:
                    self.hear(*self.samples(name))
            self.at(self.elapsed + 2.0, tick=2.0)
        return self

    def hello(self, name: str, booted: float) -> NodeReading:
        at = self.clock.wall + 2.0
        return NodeReading(name, "prod", at, Hello(1, at, name, probe="nvml", boot_time=at - booted))

    def xid(self, name: str, index: int, text: str = XID_79) -> NodeReading:
        at = self.clock.wall + 2.0
        return NodeReading(name, "prod", at, Xid(1, at, 79, index=index, text=text, source="kernel"))

    def samples(self, name: str) -> list[NodeReading]:
        at, lost = self.clock.wall + 2.0, self.lost.get(name, ())
        gpus = tuple(
            GpuSample(i, "GPU is lost", True)
            if i in lost
            else GpuSample(i, temperature_c=60, memory_used_mib=60_000, utilization_pct=97, power_w=600.0)
            for i in EIGHT
        )
        facts = tuple(GpuFacts(i, uuid=f"GPU-{name}-{i}", memory_total_mib=81_559, power_limit_w=700.0) for i in EIGHT)
        readings = (
            GpuFactsAll(1, at, facts, expected=8),
            GpuSamples(1, at, gpus),
            HostSample(1, at, load1=8.0, memory_used_mib=200_000, memory_total_mib=2_000_000),
        )
        return [NodeReading(name, "prod", at, one) for one in readings]


def test_a_calm_hour_of_a_calm_cluster_says_nothing() -> None:
    with Cluster(4) as story:
        story.talk(3_600)
        assert len(story.state.nodes) == 4
        assert not [alert for alert in story.state.alerts.values() if alert.severity != "info"]


def test_a_gpu_that_falls_off_the_bus_is_code_red_with_the_sample_that_shows_it() -> None:
    with Cluster(3) as story:
        story.talk(120)
        story.lost["gpu-002"] = (3,)
        story.talk(122)
        notice = story.expect("fire", "gpu:gpu-002/3")
        assert notice.severity == "critical"
        assert "7 of 8 GPUs respond" in notice.alerts[0].summary
        story.talk(1_000)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lost_gpu_that_returns_is_one_code_red_and_one_resolution(restarts: bool) -> None:
    with Cluster(3) as story:
        story.talk(120)
        story.lost["gpu-002"] = (3,)
        story.hear(story.xid("gpu-002", 3)).talk(130).expect("fire", "gpu:gpu-002/3")
        if restarts:
            story.restart(down_for=5.0).talk(200)
        story.talk(300).lost.clear()
        story.talk(400).expect("resolve", "gpu:gpu-002/3")
        story.talk(2_000)
        assert not [alert for alert in story.state.alerts.values() if alert.is_open and alert.severity == "critical"]


def test_a_gpu_that_is_lost_again_after_it_returned_is_code_red_again() -> None:
    with Cluster(3) as story:
        for begin in (120, 720):
            story.talk(begin)
            story.lost["gpu-002"] = (3,)
            story.hear(story.xid("gpu-002", 3)).talk(begin + 10).expect("fire", "gpu:gpu-002/3")
            story.lost.clear()
            story.talk(begin + 100).expect("resolve", "gpu:gpu-002/3")


def test_a_node_whose_cable_is_pulled_is_one_alert_and_its_gpus_are_none() -> None:
    with Cluster(5) as story:
        story.talk(120)
        story.cut_off.add("gpu-002")
        story.talk(400).expect("fire", "node:gpu-002")
        story.cut_off.clear()
        story.talk(520).expect("resolve", "node:gpu-002")


def test_a_switch_that_dies_is_one_message_for_all_its_nodes() -> None:
    with Cluster(12) as story:
        story.talk(120)
        story.cut_off = set(story.nodes[:9])
        story.talk(600).expect("fire", "cluster:prod")
        story.cut_off.clear()
        story.talk(900).expect("resolve", "cluster:prod")


def test_twenty_nodes_that_come_back_one_after_the_other_are_one_message() -> None:
    with Cluster(60) as story:
        story.talk(60)
        gone = story.nodes[:20]
        story.cut_off = set(gone)
        story.talk(300).expect("fire", *(f"node:{name}" for name in gone))
        for name in gone:
            story.cut_off.discard(name)
            story.talk(story.elapsed + 4)
        story.talk(500).expect("resolve", *(f"node:{name}" for name in gone))


def test_twenty_nodes_that_come_back_from_a_reboot_are_one_message_that_says_so() -> None:
    with Cluster(60) as story:
        story.hear(*(story.hello(name, booted=90_000) for name in story.nodes)).talk(60)
        gone = story.nodes[:20]
        story.cut_off = set(gone)
        story.talk(300).expect("fire", *(f"node:{name}" for name in gone))
        for name in gone:
            story.cut_off.discard(name)
            story.hear(story.hello(name, booted=60)).talk(story.elapsed + 4)
        notice = story.talk(800).expect("resolve", *(f"node:{name}" for name in gone))
        assert all(alert.summary.endswith("; it has rebooted since") for alert in notice.alerts)


def test_a_reboot_that_is_too_short_to_be_an_outage_is_reported() -> None:
    with Cluster(3) as story:
        story.hear(*(story.hello(name, booted=90_000) for name in story.nodes)).talk(60)
        story.hear(story.hello("gpu-002", booted=20)).talk(70)
        assert story.expect("event", "node:gpu-002").alerts[0].rule == "node-rebooted"


def test_when_all_nodes_are_gone_the_monitor_says_that_it_is_blind() -> None:
    with Cluster(6) as story:
        story.talk(120)
        story.cut_off = set(story.nodes)
        story.talk(600)
        assert {alert.rule for alert in story.state.alerts.values() if alert.phase == "firing"} >= {"monitor-blind"}
        sent = story.new()
        assert [len(notice.alerts) for notice in sent] == [1] * len(sent)
        assert {notice.alerts[0].rule for notice in sent} <= {"monitor-blind", "cluster-unreachable"}
        story.expected |= {notice.key for notice in sent}
        story.cut_off.clear()
        story.talk(900)
        assert {notice.kind for notice in story.new()} == {"resolve"}
        story.expected |= {notice.key for notice in story.new()}


def test_an_xid_79_is_reported_with_its_code() -> None:
    with Cluster(3) as story:
        story.talk(120)
        story.hear(story.xid("gpu-001", 2)).talk(126)
        notice = story.new()[0]
        assert "79" in notice.alerts[0].summary
        story.expected |= {one.key for one in story.new()}


def test_a_loss_that_is_no_number_is_reported() -> None:
    with Cluster(2) as story:
        spec = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out", nodes=tuple(story.nodes))
        story.hear(RunsChanged((spec,))).talk(4)
        for step in range(60):
            loss = "nan" if step > 50 else f"{3.0 - step / 100:.3f}"
            at = story.clock.wall + 2
            line = f"[rank0]:[titan] - root - INFO - step: {step + 1:2}  loss: {loss}  memory: 30.0GiB(40%)  tps: 7,000"
            chunk = LogChunk(1, at, "llm", "/fsx/llm.out", 100 * step, at, (line,), seen=1)
            story.hear(NodeReading("gpu-001", "prod", at, chunk)).talk(story.elapsed + 10)
        assert any(alert.rule == "loss-nan" for notice in story.new() for alert in notice.alerts)
        story.expected |= {one.key for one in story.new()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_rule_raises_on_a_state_of_which_nothing_is_known(rule: type[Rule]) -> None:
    assert findings(rule(), State(at=1.0), 1.0) == []


def test_a_disk_that_left_the_config_is_no_longer_watched_and_not_well() -> None:
    with Cluster(1) as story:
        room = {"read_only": False, "total_bytes": 10**12, "total_inodes": 10**9, "free_inodes": 10**8}
        free = {"/home": 9 * 10**11, "/fsx": 10**9}
        for until in range(10, 1_200, 10):
            disk_samples = tuple(DiskSample(path=path, mount=path, filesystem="xfs", free_bytes=free[path], **room)
                         for path in ("/home", "/fsx") if path == "/home" or until <= 300)  # fmt: skip
            story.hear(NodeReading("gpu-001", "prod", story.clock.wall, DiskSamples(1, story.clock.wall, disk_samples)))
            story.talk(until)
        story.expect("fire", "disk:gpu-001:/fsx")
        (alert,) = [alert for alert in story.state.alerts.values() if alert.rule == "disk-full"]
        assert (alert.phase, alert.ended) == ("resolved", "no longer watched")
        story.expect("resolve", "disk:gpu-001:/fsx")
