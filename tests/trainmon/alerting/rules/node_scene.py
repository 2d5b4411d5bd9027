"""Two nodes with GPUs, told by their probes through the fold: everything is well until a test says otherwise."""

from __future__ import annotations

from typing import Any

from tests.trainmon.alerting.rules.asked import findings, why_unknown
from trainmon.alerting.rules.base import Rule
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    Alert,
    AnyReading,
    Cluster,
    ClustersChanged,
    Event,
    Finding,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    InfinibandPort,
    Job,
    JobsListed,
    LogChunk,
    NodeReading,
    Problem,
    Process,
    RunsChanged,
    RunSpec,
    SchedulerNode,
    SchedulerNodesListed,
    Source,
    SourceChanged,
    State,
)

NOW = 1_000_000.0
TOTAL = 2_000_000
PYTHON = Process(pid=7, user="ana", memory_mib=70_000, command="python train.py")
SPEC = RunSpec(name="llm", cluster="prod", job="llm", log="/fsx/llm.out", nodes=("n1", "n2"), stall_after=900)
STEP = " [2025-08-01 07:19:37] iteration {:8d}/   50000 | elapsed time per iteration (ms): 4100.0 | lm loss: 2.0E+00 |"

SAMPLE = {"temperature_c": 62, "memory_used_mib": 70_000, "utilization_pct": 98, "power_w": 640.0,
          "sm_clock_mhz": 1_900, "throttle_mask": 0x4}  # fmt: skip
FACT = {"name": "NVIDIA H100", "memory_total_mib": 81_559, "power_limit_w": 700.0, "temperature_margin_c": 25,
        "ecc_uncorrected": 0, "ecc_corrected": 0, "remap_pending": False, "remap_failed": False,
        "processes": (PYTHON,)}  # fmt: skip
IDLE = {"temperature_c": 33, "memory_used_mib": 4, "utilization_pct": 0, "power_w": 70.0, "throttle_mask": 0x1}


def samples(at: float, gpus: int = 8, odd: int = 3, **changes: Any) -> GpuSamples:
    """All GPUs of a node; the odd one is as the test says."""
    rows = [GpuSample(index=index, **SAMPLE | (changes if index == odd else {})) for index in range(gpus)]
    return GpuSamples(1, at, tuple(rows))


def facts(at: float, gpus: int = 8, odd: int = 3, expected: int | None = 8, **changes: Any) -> GpuFactsAll:
    rows = [GpuFacts(index=index, **FACT | (changes if index == odd else {})) for index in range(gpus)]
    return GpuFactsAll(1, at, tuple(rows), expected)


def host(at: float, **changes: Any) -> HostSample:
    ports = tuple(InfinibandPort(f"mlx5_{n}/1", "ACTIVE", 0, 0) for n in range(2))
    usual = {"memory_used_mib": 500_000, "memory_total_mib": TOTAL, "boot_time": NOW - 90_000, "oom_kills": 0}
    return HostSample(1, at, **{"infiniband": ports} | usual | changes)


def port(name: str = "mlx5_1/1", state: str | None = "ACTIVE", link_downed: int = 0, errors: int = 0) -> dict[str, Any]:
    """A host whose second port is as the test says."""
    return {
        "infiniband": (InfinibandPort("mlx5_0/1", "ACTIVE", 0, 0), InfinibandPort(name, state, link_downed, errors))
    }


def job(**changes: Any) -> Job:
    usual: dict[str, Any] = {"cluster": "prod", "id": "88", "number": 88, "name": "llm", "user": "ana"}
    return Job(**usual | {"state": "RUNNING", "started_at": NOW - 7_200, "nodes": ("n1", "n2")} | changes)


def slurm(name: str, state: str = "ALLOCATED", *flags: str, **changes: Any) -> SchedulerNode:
    return SchedulerNode(name=name, cluster="prod", state=state, flags=flags, **changes)


class Scene:
    """A State that grows by what is said, at a clock that the test moves."""

    def __init__(self, *nodes: str) -> None:
        self.state = State()
        self.now = NOW
        self.nodes = nodes or ("n1", "n2")
        for name in self.nodes:
            self.well(name)

    def reduce(self, *events: Event) -> Scene:
        self.state = reduce(self.state, events, self.now)
        return self

    def say(self, node: str, *readings: AnyReading) -> Scene:
        return self.reduce(*(NodeReading(node, "prod", self.now, reading) for reading in readings))

    def after(self, seconds: float) -> Scene:
        self.now += seconds
        return self.reduce()

    def well(self, name: str) -> Scene:
        """A node says that everything is ok."""
        hello = Hello(1, self.now, name, python="3.10", probe="nvml", boot_time=NOW - 90_000)
        return self.say(name, hello, facts(self.now), samples(self.now), host(self.now))

    def runs(self, *jobs: Job) -> Scene:
        """A run that trains on both nodes, with a step just now; its job is in the queue unless others are given."""
        source = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up", answered_at=self.now, period=1e6)
        listed = SchedulerNodesListed("prod", self.now, tuple(slurm(name) for name in self.nodes))
        self.reduce(SourceChanged(source), RunsChanged((SPEC,)), JobsListed("prod", self.now, jobs or (job(),)), listed)
        return self.steps()

    def steps(self) -> Scene:
        """Its log grows by a step."""
        number = int(self.now - NOW) // 2 + 1_000
        lines = (STEP.format(number), STEP.format(number + 1))
        chunk = LogChunk(v=1, t=self.now, id="llm", path="/fsx/llm.out", lines=lines, seen=2)
        return self.reduce(NodeReading("n2", "prod", self.now, chunk))

    def scheduler(self, *nodes: SchedulerNode, spares: int = 0) -> Scene:
        """What Slurm says of nodes now."""
        source = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up", answered_at=self.now, period=1e6)
        cluster = Cluster(name="prod", login="login", spares=spares)
        return self.reduce(
            SourceChanged(source), ClustersChanged((cluster,)), SchedulerNodesListed("prod", self.now, nodes)
        )

    def silent(self, seconds: float = 120.0) -> Scene:
        """The first node says nothing for a while; the others are well."""
        self.now += seconds
        for name in self.nodes[1:]:
            self.well(name)
        return self.reduce()

    def lost(self, error: str | None = "no answer in 10s", **changes: Any) -> Scene:
        """The connection to the first node is gone."""
        usual: dict[str, Any] = {"name": "node:n1", "kind": "node", "cluster": "prod", "phase": "retrying"}
        return self.reduce(SourceChanged(Source(**usual | {"error": error} | changes)))

    def found(self, rule: Rule) -> dict[str, Finding]:
        """What a rule finds now, by subject."""
        return {finding.subject: finding for finding in findings(rule, self.state, self.now)}

    def why_unknown(self, rule: Rule, finding: Finding) -> str | None:
        """Why the rule says nothing of what it found before."""
        return why_unknown(rule, self.state, alert(finding, self.now), self.now)


def alert(finding: Finding, now: float) -> Alert:
    same: dict[str, Any] = {name: getattr(finding, name) for name in Problem.__struct_fields__}
    return Alert(id="a1", since=finding.since or now, found_at=now, phase="firing", **same)
