"""Links that differ from those of their peers: planted faults are found, and healthy fabrics accuse nobody."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collectors.probe.host import Host
from tests.collectors.probe.wire import readings_of
from tests.lab.fabric import FAST, SLOW, Fabric, Shape
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe
from tests.trainmon.alerting.rules.node_scene import NOW, SPEC, Scene, facts, host, samples
from trainmon.alerting.rules.runs.peers import SlowLink, losing_of
from trainmon.model import (
    Attempt,
    Finding,
    GpuFactsAll,
    GpuLinks,
    InfinibandPort,
    RankMap,
    RunsChanged,
    Source,
    SourceChanged,
)

RULE = SlowLink()
WINDOW = 30.0
NAMES = tuple(f"n{number}" for number in range(1, 9))


@dataclass
class Cluster:
    """Eight nodes of one run on a fabric."""

    fabric: Fabric
    makes_steps: bool = True
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        self.scene = Scene(*self.fabric.names).runs()
        self.scene.reduce(RunsChanged((replace(SPEC, nodes=self.fabric.names),))).steps()

    def reads(self, windows: int = 6) -> Cluster:
        """The probes read all ports so many times."""
        for _ in range(windows):
            self.fabric.advance(WINDOW)
            self.scene.after(WINDOW)
            if self.makes_steps:
                self.scene.steps()
            for name in self.fabric.names:
                self.scene.say(name, samples(self.scene.now), host(self.scene.now, infiniband=self.fabric.ports(name)))
        return self

    def found(self) -> dict[str, Finding]:
        return self.scene.found(RULE)


def narrow(scene: Scene, **links: Any) -> Scene:
    """GPU 3 of n1 has other links than its peers."""
    usual = {"pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16, "pcie_replays": 0,
             "nvlinks": 18, "nvlinks_up": 18, "nvlink_errors": 0}  # fmt: skip
    for name in scene.nodes:
        own = facts(scene.now, links=GpuLinks(**usual | (links if name == "n1" else {})))
        others = tuple(replace(gpu, links=gpu.links or GpuLinks(**usual)) for gpu in own.g)
        scene.say(name, GpuFactsAll(1, scene.now, others, own.expected))
    return scene


TROUBLE = {"slow-link": lambda scene: narrow(scene, pcie_width=8)}


@pytest.mark.parametrize("seed", range(8))
def test_a_port_that_alone_loses_packets_is_found(seed: int) -> None:
    fabric = Fabric(seed, shape=("dense", "pipeline")[seed % 2], adaptive=seed % 4 < 2)
    node, port = fabric.random.choice(fabric.names), fabric.random.choice(fabric.keys)
    found = Cluster(fabric.loses(node, port)).reads(8).found()
    assert list(found) == [f"node:{node} {port}"]
    (finding,) = found.values()
    assert finding.severity == "warning"
    assert finding.run == "llm"
    assert f"{port} of {node} counts " in finding.summary
    assert " out_of_sequence per second, its " in finding.summary
    assert (
        "out_of_sequence: packets arrived out of order: some were lost, or took another way (adaptive routing)"
        in finding.evidence
    )


@pytest.mark.parametrize("counter", ["packet_seq_err", "local_ack_timeout_err", "roce_adp_retrans"])
def test_so_is_one_with_retransmissions_of_another_kind(counter: str) -> None:
    found = Cluster(Fabric(11, adaptive=True).loses("n4", "mlx5_1/1", 1e-8, counter)).reads().found()
    assert list(found) == ["node:n4 mlx5_1/1"]


@pytest.mark.parametrize("seed", range(4))
def test_a_port_with_less_speed_than_its_peers_is_found(seed: int) -> None:
    fabric = Fabric(seed, nodes=(2, 4, 8, 8)[seed])
    node, port = fabric.random.choice(fabric.names), fabric.random.choice(fabric.keys)
    (finding,) = Cluster(fabric.slows(node, port)).reads(1).found().values()
    assert finding.subject == f"node:{node} {port}"
    assert f"{port} of {node} runs at 100 Gb/s, its " in finding.summary
    assert finding.summary.endswith("at 400 Gb/s")
    assert f"{port}: InfiniBand, {SLOW}" in finding.evidence


@pytest.mark.parametrize("seed", range(12))
def test_a_port_that_carries_another_share_than_its_peers_is_found(seed: int) -> None:
    """In a pipeline, too, whose stages differ; and where the other ports of its node carry the rest."""
    ports = (4, 8, 3, 6)[seed % 4]
    fabric = Fabric(seed, nodes=(8, 4)[seed % 3 == 0], ports=ports, shape=("dense", "pipeline")[seed % 2])
    node, (port, other) = fabric.random.choice(fabric.names), fabric.random.sample(fabric.keys, 2)
    times = (0.0, 0.3, 4.0)[seed % 3]
    fabric.carries(node, port, times, other if ports > 3 and times == 0.3 else None)
    cluster = Cluster(fabric).reads(8)
    (finding,) = cluster.found().values()
    assert finding.subject == f"node:{node} {port}"
    assert re.search(
        rf"^{port} of {node} moves \S+ GB per step, its {len(fabric.names) - 1} peers \S+$", finding.summary
    )
    before, after = (float(found) for found in re.findall(r"(?:moves|peers) (\S+)", finding.summary))
    assert (before > after) is (times > 1.0)


def test_bytes_are_per_step_as_far_as_steps_are_counted() -> None:
    """5 GB a second and a step every two seconds; without steps that are counted, per second."""
    for makes_steps, unit, gb in ((True, "step", 10.0), (False, "second", 5.0)):
        cluster = Cluster(Fabric(3).carries("n2", "mlx5_1/1", 0.0), makes_steps).reads(11)
        (finding,) = cluster.found().values()
        moved = re.search(rf" moves (\S+) GB per {unit}, its 7 peers (\S+)$", finding.summary)
        assert moved is not None
        assert float(moved[1]) < 0.01
        assert float(moved[2]) == pytest.approx(gb, rel=0.1)


def test_a_port_with_another_share_is_not_well_because_the_run_pauses() -> None:
    cluster = Cluster(Fabric(3).carries("n2", "mlx5_1/1", 0.2)).reads(8)
    (finding,) = cluster.found().values()
    traffic, cluster.fabric.traffic = cluster.fabric.traffic, dict.fromkeys(cluster.fabric.traffic, 0.0)
    cluster.reads(11)
    assert cluster.found() == {}
    assert cluster.scene.why_unknown(RULE, finding) == "mlx5_1/1 is idle: it cannot be compared"
    seen = cluster.scene.state
    runs = {name: replace(run, verdict="evaluating") for name, run in seen.runs.items()}
    cluster.scene.state = replace(seen, runs=runs)
    assert cluster.scene.why_unknown(RULE, finding) == "llm is evaluating: its ports cannot be compared"
    cluster.scene.state = seen
    cluster.fabric.traffic = traffic
    cluster.fabric.carries("n2", "mlx5_1/1", 5.0)
    cluster.reads(11)
    assert cluster.found() == {}
    assert cluster.scene.why_unknown(RULE, finding) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_ends_of_a_pipeline_are_no_faults(seed: int) -> None:
    """With two stages on each node, the first one receives nothing from another node, and the last one sends nothing;
    with one stage for each port, the embedding makes one of them larger in each of two pipelines."""
    fabric = Fabric(seed, nodes=(8, 16)[seed % 2], ports=8, shape=("dense", "pipeline")[seed // 2])
    for node, ports in ((fabric.names[0], fabric.keys[:4]), (fabric.names[-1], fabric.keys[4:])):
        for port in ports:
            fabric.carries(node, port, 0.05)
    assert Cluster(fabric).reads(8).found() == {}
    fabric = Fabric(seed, nodes=32, ports=8).carries("n1", "mlx5_0/1", 4.0).carries("n17", "mlx5_0/1", 4.0)
    assert Cluster(fabric).reads(8).found() == {}


def test_what_another_run_on_a_node_moves_is_not_of_this_one() -> None:
    cluster = Cluster(Fabric(5).carries("n2", "mlx5_1/1", 4.0))
    cluster.scene.reduce(RunsChanged((replace(SPEC, nodes=NAMES), replace(SPEC, name="other", nodes=("n2",)))))
    assert cluster.reads(8).found() == {}


def test_the_node_of_rank_0_may_move_more_and_not_less() -> None:
    known = RankMap(launcher="slurm", ranks=64, nodes={"n1": {gpu: (gpu,) for gpu in range(8)}})
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", job_id="88", ranks=known)
    for times, subjects in ((4.0, []), (0.2, ["node:n1 mlx5_1/1"])):
        cluster = Cluster(Fabric(5).carries("n1", "mlx5_1/1", times)).reads(8)
        cluster.scene.state = replace(cluster.scene.state, attempts={attempt.attempt_id: attempt})
        assert list(cluster.found()) == subjects


def test_what_an_evaluation_has_moved_is_not_of_the_steps() -> None:
    cluster = Cluster(Fabric(5)).reads(6)
    cluster.fabric.carries("n2", "mlx5_1/1", 5.0)
    cluster.makes_steps = False
    cluster.reads(7)
    cluster.fabric.carries("n2", "mlx5_1/1", 0.2)
    cluster.makes_steps = True
    found = [bool(cluster.reads(1).found()) for _ in range(10)]
    assert found.count(True) * WINDOW < RULE.for_


def test_one_period_of_a_log_that_is_late_names_nobody() -> None:
    """Steps come every five minutes, and in that period a port has carried a checkpoint."""
    cluster = Cluster(Fabric(5)).reads(6)
    cluster.makes_steps = False
    cluster.reads(9)
    cluster.fabric.carries("n2", "mlx5_1/1", 5.0)
    cluster.makes_steps = True
    cluster.reads(1)
    cluster.fabric.carries("n2", "mlx5_1/1", 0.2)
    cluster.makes_steps = False
    for _ in range(9):
        assert cluster.reads(1).found() == {}


@pytest.mark.parametrize("seed", range(6))
def test_adapters_with_other_names_carry_what_the_others_do(seed: int) -> None:
    """Also where the ports for storage are as fast."""
    fabric = Fabric(seed, nodes=(4, 8)[seed % 2], shape=("dense", "pipeline")[seed % 3 == 0])
    for name in fabric.names:
        fabric.slows(name, "mlx5_9/1", FAST)
    cluster = Cluster(fabric.swaps(fabric.random.choice(fabric.names), "mlx5_0/1", "mlx5_9/1"))
    for _ in range(12):
        assert cluster.reads(1).found() == {}


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("shape", ["dense", "pipeline", "idle"])
def test_200_healthy_windows_accuse_nobody(shape: Shape, adaptive: bool) -> None:
    """Noise, bursts, resets, congestion, idle ranks, stages with different loads, and the traffic of rank 0."""
    for seed in range(10):
        cluster = Cluster(Fabric(seed, nodes=(8, 3)[seed % 2], ports=2, shape=shape, adaptive=adaptive))
        for _ in range(20):
            assert cluster.reads(1).found() == {}, seed


def test_two_nodes_whose_adapters_are_all_slower_have_other_hardware() -> None:
    fabric = Fabric(3)
    for name in ("n2", "n7"):
        for port in fabric.keys:
            fabric.slows(name, port, "200 Gb/sec (4X HDR)")
    assert Cluster(fabric).reads(1).found() == {}


def test_adapters_that_have_swapped_their_names_are_not_slow() -> None:
    fabric = Fabric(3).slows("n2", "mlx5_0/1", "100 Gb/sec (4X EDR)").slows("n2", "mlx5_9/1", FAST)
    assert Cluster(fabric).reads(1).found() == {}


def test_too_few_peers_accuse_nobody() -> None:
    fabric = Fabric(1, nodes=1, ports=8).slows("n1", "mlx5_0/1").loses("n1", "mlx5_1/1")
    assert Cluster(fabric).reads().found() == {}, "its ports may have different purposes"
    fabric = Fabric(1, nodes=2, ports=1).slows("n1", "mlx5_0/1").loses("n2", "mlx5_0/1")
    assert Cluster(fabric).reads().found() == {}


def test_a_port_for_storage_that_one_node_uses_is_no_peer_of_one_for_collectives() -> None:
    """The server of rank 0 sends through one port of another switch, where packets get lost."""
    for nodes in (2, 8):
        fabric = Fabric(5, nodes=nodes).slows("n1", "mlx5_9/1", FAST).loses("n1", "mlx5_9/1")
        for name in fabric.names[1:]:
            fabric.slows(name, "mlx5_9/1", FAST)
        assert Cluster(fabric).reads().found() == {}


def test_a_node_of_which_most_ports_lose_packets_is_behind_another_switch() -> None:
    fabric = Fabric(5, nodes=5)
    for port in fabric.keys[:3]:
        fabric.loses("n4", port, 2e-6)
    assert Cluster(fabric).reads().found() == {}
    assert set(Cluster(Fabric(5).loses("n4", "mlx5_0/1").loses("n4", "mlx5_1/1")).reads().found()) == {
        "node:n4 mlx5_0/1",
        "node:n4 mlx5_1/1",
    }


def test_three_nodes_with_another_port_for_storage_have_other_hardware() -> None:
    fabric = Fabric(3, nodes=20)
    for name in ("n2", "n7", "n9"):
        fabric.slows(name, "mlx5_9/1", "40 Gb/sec (4X QDR)")
    assert Cluster(fabric).reads(1).found() == {}


def test_a_port_that_is_no_longer_listed_counts_nothing() -> None:
    cluster = Cluster(Fabric(6, nodes=4).loses("n1", "mlx5_1/1")).reads()
    (finding,) = cluster.found().values()
    keys = cluster.fabric.keys
    for _ in range(2):
        cluster.reads(1)
        left = tuple(port for port in cluster.fabric.ports("n1") if port.port != "mlx5_1/1")
        cluster.scene.say("n1", host(cluster.scene.now, infiniband=left))
    cluster.fabric.keys = tuple(key for key in keys if key != "mlx5_1/1")
    cluster.reads(1)
    assert cluster.found() == {}
    assert cluster.scene.why_unknown(RULE, finding) == "n1 does not report the links of mlx5_1/1"


def test_a_slow_port_stays_so_while_another_one_is_gone() -> None:
    cluster = Cluster(Fabric(6, nodes=8).slows("n1", "mlx5_1/1")).reads(1)
    left = tuple(port for port in cluster.fabric.ports("n1") if port.port != "mlx5_2/1")
    cluster.scene.say("n1", host(cluster.scene.now, infiniband=left))
    assert list(cluster.found()) == ["node:n1 mlx5_1/1"]


def test_a_slow_port_is_found_beside_one_that_has_never_been_up() -> None:
    fabric = Fabric(6, nodes=8).slows("n1", "mlx5_1/1")
    cluster = Cluster(fabric)
    ports = (replace(one, state="DOWN") if one.port == "mlx5_2/1" else one for one in fabric.ports("n1"))
    cluster.scene.say("n1", host(cluster.scene.now, infiniband=tuple(ports)))
    for name in fabric.names[1:]:
        cluster.scene.say(name, host(cluster.scene.now, infiniband=fabric.ports(name)))
    assert list(cluster.found()) == ["node:n1 mlx5_1/1"]


def test_what_many_nodes_have_is_the_shape_of_the_run() -> None:
    fabric = Fabric(4)
    for name in fabric.names[:4]:
        fabric.loses(name, "mlx5_1/1")
    assert Cluster(fabric).reads().found() == {}


def test_growth_is_compared_once_for_the_same_readings() -> None:
    scene = Cluster(Fabric(4).loses("n3", "mlx5_1/1")).reads().scene
    links = {name: past.fabric for name, past in scene.state.node_histories.items()}
    found = losing_of("llm", links, 1.0, 10.0, 3)
    assert [one.node for one in found] == ["n3"]
    assert losing_of("llm", dict(links), 1.0, 10.0, 3) is found
    assert losing_of("llm", links, 2.0, 10.0, 3) is not found
    assert losing_of("llm", links | {"n1": dict(links["n1"])}, 1.0, 10.0, 3) is not found


def test_an_old_counter_that_stands_still_says_nothing() -> None:
    fabric = Fabric(4)
    fabric.counts["n3", "mlx5_1/1"]["out_of_sequence"] = 5e6
    assert Cluster(fabric).reads().found() == {}


def test_a_link_is_not_over_while_its_peers_or_its_counters_are_not_known() -> None:
    cluster = Cluster(Fabric(6, nodes=4).loses("n1", "mlx5_1/1")).reads()
    (finding,) = cluster.found().values()
    scene = cluster.scene
    assert scene.why_unknown(RULE, finding) is None
    for name in ("n2", "n3", "n4"):
        lost = Source(name=f"node:{name}", kind="node", cluster="prod", phase="retrying", error="no answer in 10s")
        scene.reduce(SourceChanged(lost))
    assert scene.why_unknown(RULE, finding) == "too few of its peers answer"
    cluster.reads(1)
    scene.state = replace(scene.state, node_histories={})
    cluster.reads(2)
    assert scene.why_unknown(RULE, finding) == "the counters of mlx5_1/1 have been read for too short a time"
    scene.say("n1", host(scene.now, infiniband=(InfinibandPort("mlx5_0/1", "ACTIVE", 0, 0),)))
    scene.state = replace(scene.state, node_histories={})
    assert scene.why_unknown(RULE, finding) == "n1 does not report the links of mlx5_1/1"


@pytest.mark.parametrize(
    ("links", "text"),
    [
        ({"pcie_width": 8}, "GPU 3 of n1 uses 8 PCIe lanes, its 15 peers 16"),
        ({"nvlinks_up": 17}, "GPU 3 of n1 has 17 active NVLinks, its 15 peers 18"),
        ({"pcie_gen": 3}, "GPU 3 of n1 is at PCIe generation 3, its 15 peers at 5"),
    ],
)
def test_a_gpu_with_less_than_its_peers_is_found(links: dict[str, int], text: str) -> None:
    found = narrow(Scene().runs(), **links).found(RULE)
    assert {subject: one.summary for subject, one in found.items()} == {"gpu:n1/3": text}


@pytest.mark.parametrize(
    "links",
    [
        {"pcie_width": 8, "pcie_width_max": 8},  # a slot with eight lanes
        {"pcie_width": 0},  # a virtual machine
        {"nvlinks_up": 0},  # with MIG, or a card without a bridge
        {"pcie_gen": 4, "pcie_gen_max": 4},
    ],
)
def test_a_gpu_that_can_have_no_more_is_not_slow(links: dict[str, int]) -> None:
    assert narrow(Scene().runs(), **links).found(RULE) == {}


def test_a_display_beside_the_gpus_of_a_workstation_is_none_of_them() -> None:
    scene = narrow(Scene("n1"), pcie_width=8, nvlinks_up=1, pcie_gen=3)
    gpus = scene.state.nodes["n1"].gpus
    odd = tuple(replace(gpu, name="NVIDIA T1000") if gpu.index == 3 else gpu for gpu in gpus)
    scene.say("n1", GpuFactsAll(1, scene.now, odd[:5], 5))
    assert scene.found(RULE) == {}


def test_three_gpus_are_two_peers_each() -> None:
    scene = narrow(Scene("n1"), pcie_width=8)
    scene.say("n1", GpuFactsAll(1, scene.now, scene.state.nodes["n1"].gpus[1:4], 3))
    assert scene.found(RULE) == {}


def test_the_generation_of_idle_gpus_is_not_known() -> None:
    """Fifteen GPUs could be at 5 by their driver; the only one with work is at 4, as all would be."""
    scene = Scene().runs()
    for name in scene.nodes:
        rows = (replace(one, utilization_pct=98 * (name == "n1" and one.index == 3)) for one in samples(scene.now).g)
        scene.say(name, replace(samples(scene.now), g=tuple(rows)))
    assert narrow(scene, pcie_gen=4).found(RULE) == {}


def test_a_gpu_with_work_among_idle_ones_is_none_of_their_peers() -> None:
    scene = Scene().runs()
    for number in range(8):
        scene.after(WINDOW)
        for name in scene.nodes:
            rows = (replace(one, utilization_pct=98 * (name == "n1" and one.index == 3)) for one in samples(0.0).g)
            scene.say(name, replace(samples(scene.now), g=tuple(rows)))
        narrow(scene, nvlink_errors=1_000 * number).steps()
    assert scene.found(RULE) == {}


def test_the_ranks_that_are_there_are_named() -> None:
    scene = narrow(Scene().runs(), pcie_width=8)
    known = RankMap(launcher="slurm", ranks=16, nodes={"n1": {rank: (rank,) for rank in range(8)}})
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", job_id="88", ranks=known)
    scene.state = replace(scene.state, attempts={attempt.attempt_id: attempt})
    (finding,) = scene.found(RULE).values()
    assert finding.summary == "GPU 3 of n1 uses 8 PCIe lanes, its 15 peers 16: rank 3 (n1 GPU 3)"
    assert finding.evidence == ("rank 3 (n1 GPU 3)",)


def test_of_a_port_all_ranks_of_its_node_are_named() -> None:
    cluster = Cluster(Fabric(2).slows("n3", "mlx5_0/1")).reads(1)
    known = RankMap(launcher="slurm", ranks=64, nodes={"n3": {16 + gpu: (gpu,) for gpu in range(8)}})
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", job_id="88", ranks=known)
    cluster.scene.state = replace(cluster.scene.state, attempts={attempt.attempt_id: attempt})
    (finding,) = cluster.found().values()
    assert finding.summary.endswith("at 400 Gb/s: rank 16 (n3 GPU 0) and 7 more")
    assert finding.evidence[-1] == "rank 21 (n3 GPU 5)"


def test_an_idle_gpu_saves_power_on_its_link() -> None:
    scene = Scene().runs().say("n1", samples(NOW, utilization_pct=0))
    assert narrow(scene, pcie_gen=1).found(RULE) == {}


def test_a_link_is_not_well_because_its_gpu_is_idle() -> None:
    scene = narrow(Scene().runs(), pcie_gen=3)
    (finding,) = scene.found(RULE).values()
    for _ in range(8):
        narrow(scene.after(WINDOW).say("n1", samples(scene.now, utilization_pct=0)), pcie_gen=1)
    assert scene.found(RULE) == {}
    assert scene.why_unknown(RULE, finding) == "GPU 3 is idle: it cannot be compared"
    for _ in range(8):
        narrow(scene.after(WINDOW).say("n1", samples(scene.now)))
    assert scene.why_unknown(RULE, finding) is None


def test_a_port_without_traffic_loses_nothing_and_is_not_well() -> None:
    cluster = Cluster(Fabric(6, nodes=4).loses("n1", "mlx5_1/1").slows("n2", "mlx5_2/1")).reads()
    lossy, slow = sorted(cluster.found().values(), key=lambda one: one.subject)
    traffic = cluster.fabric.traffic
    cluster.fabric.traffic = dict.fromkeys(traffic, 0.0)
    cluster.fabric.rates["n2", "mlx5_2/1"] = FAST
    cluster.reads(11)
    assert cluster.found() == {}
    assert cluster.scene.why_unknown(RULE, lossy) == "mlx5_1/1 is idle: it cannot be compared"
    assert cluster.scene.why_unknown(RULE, slow) is None, "its speed is known"
    cluster.fabric.traffic, cluster.fabric.lossy = traffic, {}
    cluster.reads(11)
    assert cluster.scene.why_unknown(RULE, lossy) is None


def test_errors_of_nvlink_that_grow_on_one_gpu_are_found() -> None:
    scene = Scene().runs()
    for number in range(8):
        narrow(scene.after(WINDOW), nvlink_errors=1_000 * number).steps()
    (finding,) = scene.found(RULE).values()
    assert finding.subject == "gpu:n1/3"
    assert finding.summary.startswith("GPU 3 of n1 counts 33.3 nvlink_errors per second, its 15 peers 0 ")


@pytest.mark.parametrize("seed", range(3))
def test_the_odd_gpu_of_a_node_is_found_through_its_driver(seed: int, tmp_path: Path) -> None:
    nvml = Nvml(tmp_path)
    odd = nvml.plant(seed)
    with RunningProbe(nvml.environment()) as probe:
        read = probe.wait(GpuFactsAll, lambda every: all(gpu.links for gpu in every.g))
    scene = Scene("n1")
    scene.say("n1", replace(read, t=NOW))
    assert list(scene.found(RULE)) == [f"gpu:n1/{odd}"]


def test_the_files_of_a_fabric_are_read_as_they_are(tmp_path: Path) -> None:
    fabric = Fabric(9, nodes=4, ports=1).loses("n2", "mlx5_0/1")
    probes = {name: Host({}, str(tmp_path / name)) for name in fabric.names}
    cluster = Cluster(fabric)
    for _ in range(6):
        fabric.advance(WINDOW)
        cluster.scene.after(WINDOW)
        for name, probe in probes.items():
            fabric.write(name, tmp_path / name)
            (line,) = readings_of(probe, slow=True)
            assert line.infiniband == fabric.ports(name)
            cluster.scene.say(name, samples(cluster.scene.now), replace(line, t=cluster.scene.now))
    assert list(cluster.found()) == ["node:n2 mlx5_0/1"]
    (line,) = readings_of(probes["n1"])
    assert line.infiniband is None, "they are read every 30 s"
    cluster.scene.say("n1", replace(line, t=cluster.scene.now))
    assert len(cluster.scene.state.nodes["n1"].infiniband) == 2
