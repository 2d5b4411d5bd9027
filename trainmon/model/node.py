"""Sources, nodes and GPUs: the latest numbers, and the bounded history of a node."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Literal, NamedTuple

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.probe_wire import GpuFacts, InfinibandPort, Probe, RankProcesses

Health = Literal["ok", "late", "down", "off"]
"""ok: answers. late: older than 3 periods. down: failed, see its error. off: not wanted now, no fault."""

SourceKind = Literal["node", "slurm", "wandb", "files", "daemon", "prometheus"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One data source, such as `node:gpu-001`, with its health and age."""

    name: str
    kind: SourceKind
    cluster: str
    health: Health = "late"
    answered_at: Instant | None = None
    """When it last sent data, by our clock."""
    period: Seconds = 2.0
    phase: Literal["waiting", "connecting", "up", "retrying", "held", "off"] = "waiting"
    """What the collector does. held: it does not reconnect until a person requests it (login needed or refused)."""
    can_log_in: bool = True
    """Whether a person who answers a prompt can log in, if it is held or off with an error."""
    retry_at: Instant | None = None
    login_since: Instant | None = None
    """Since when a host that accepts connections has not finished its first login; null otherwise."""
    error: str | None = None
    hint: str | None = None
    bad_lines: int = 0
    """Invalid lines since the start: not JSON, too long, or of another version."""
    stderr: str | None = None
    """The last line on the remote standard error."""
    step_of: int | None = None
    """The number of our job in which its probe runs as a step; null for a node that is read over SSH."""
    via: str | None = None
    """The source that has its numbers, such as `prometheus:prod:dcgm`; null for a node that is read over SSH."""

    @property
    def answers(self) -> bool:
        """Whether it has ever answered, and has not failed since."""
        return self.answered_at is not None and self.health != "down"

    @property
    def problem(self) -> str | None:
        """Its error without its own name, which the line before it has."""
        name = self.name.partition(":")[2]
        return None if self.error is None else self.error.removeprefix(f"{name}: ").removeprefix(f"{name} ")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a login. The answer is never stored in any value."""

    id: int
    host: str
    title: str
    """What is requested, such as: Password, Passphrase for ~/.ssh/id_ed25519, Duo two-factor."""
    instructions: str = ""
    fields: tuple[tuple[str, bool], ...] = ()
    """(text, echo) for each answer."""


class Gpu(GpuFacts, frozen=True, kw_only=True, gc=False):
    """One GPU of a node: its slow facts and its latest numbers. `state` lost: it fell off the bus or vanished; error:
    it answers with an error."""

    state: Literal["ok", "lost", "error"] = "ok"
    error: str | None = None
    temperature_c: int | None = None
    edge_temperature_c: int | None = None
    memory_temperature_c: int | None = None
    memory_used_mib: int | None = None
    utilization_pct: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    last_xid: int | None = None
    last_xid_at: Instant | None = None


GPU_METRICS: Mapping[str, tuple[str, float]] = {
    "temperature": ("temperature_c", 1.0),
    "memory": ("memory_used_mib", 4.0),
    "utilization": ("utilization_pct", 1.0),
    "power": ("power_w", 0.1),
}
"""The numbers of a GPU that have a history: the field of a Gpu, and the unit of one count in its 16-bit column: °C,
4 MiB (up to 256 GiB), %, 0.1 W (up to 6.5 kW)."""


class GpuAverage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Moving averages of one GPU over the last minutes: a single sample says little about a GPU."""

    index: int
    since: Instant
    """Since when there are samples without a gap."""
    at: Instant
    utilization_pct: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One host and its GPUs. Its health and errors are those of the source `node:<name>`."""

    name: str
    cluster: str
    probe: Probe = "none"
    note: str | None = None
    greeted_at: Instant | None = None
    """When its probe last sent Hello, by our clock. Older GPU numbers are from an earlier session."""
    confined: bool = False
    """Whether its probe may see only some GPUs, because it runs in a container or in a job's cgroup."""
    driver: str | None = None
    clock_skew_s: Seconds | None = None
    """Their clock minus ours; data does not become stale by it."""
    load1: float | None = None
    cpu_count: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    boot_time: Instant | None = None
    oom_kills: int | None = None
    network_errors: int | None = None
    infiniband: tuple[InfinibandPort, ...] = ()
    gpus_expected: int | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_at: Instant | None = None
    """When the GPU numbers were last read, by our clock."""
    ranks: RankProcesses | None = None
    """The ranks of the processes there; null before they were read."""
    host_at: Instant | None = None
    troubles: Mapping[str, str] = {}
    """Current errors of its probe, by part: gpu, host, disk, log, switch, probe."""
    paces: tuple[GpuAverage, ...] = ()
    """The moving averages of its GPUs."""


class Growth(NamedTuple):
    """The growth of a counter between `first` and `last`, which are at most a minute apart."""

    first: Instant
    last: Instant
    by: int


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A counter that should not grow. If it falls, it was reset (reboot, driver reload) and counts from there."""

    value: int
    grown: tuple[Growth, ...] = ()
    """The newest last, at most GROWTHS."""

    def since(self, at: Instant) -> int:
        """The growth since `at`."""
        return sum(growth.by for growth in self.grown if growth.last >= at)


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A burst of one fault code on one GPU: faults that are at most FAULT_GAP apart."""

    code: int
    index: int | None
    """The GPU; null for an NVSwitch, or if the driver does not name it."""
    first_at: Instant
    last_at: Instant
    count: int = 1
    text: str | None = None
    """The text of the last one in the kernel log; null if only NVML or Prometheus reported it."""
    is_switch: bool = False
    """Whether it is an SXid."""
    source: Literal["nvml", "kernel", "prometheus"] = "nvml"
    """What reported the last one."""


class LinkPast(msgspec.Struct, frozen=True, gc=False):
    """How the counters of a link have grown: of an InfiniBand port, or of the links of a GPU."""

    at: Instant
    """When they were last read."""
    kind: str
    """Of a port its link layer and rate, of a GPU its name. Only links of one kind are compared."""
    values: Mapping[str, int]
    periods: tuple[Mapping[str, float], ...] = ()
    """The growth per second between two readings, the newest last; of the counters that grew."""
    rates: Mapping[str, float] | None = None
    """The usual growth per second in these periods; null while they are too few."""


class LinkSpeed(NamedTuple):
    """How fast a link is."""

    link: str
    what: str
    """Of a port its link layer, of a GPU the field of GpuLinks."""
    kind: str
    """Links of one kind are compared: ports of one name, GPUs of one model."""
    value: float
    """Gb/s, or what the field has."""
    most: float = inf
    """What it could be, where that is known."""


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What successive readings of a node show together: growth, faults, reboots, trends."""

    counters: Mapping[str, Counter] = {}
    """By name: `oom_kills`, `ecc 3`, `link_downed mlx5_0/1`, `errors mlx5_0/1`."""
    faults: tuple[Fault, ...] = ()
    """The newest last, at most FAULTS."""
    booted_at: Instant | None = None
    """Its last boot by our clock, and by its own: setting a clock moves only one of them."""
    boot_time: Instant | None = None
    rebooted_at: Instant | None = None
    """When it rebooted while we watched."""
    links: tuple[str, ...] = ()
    """InfiniBand ports that were ACTIVE at some time. A port that never was is no fault."""
    speeds: tuple[LinkSpeed, ...] = ()
    """Of its active ports."""
    gpu_speeds: tuple[LinkSpeed, ...] = ()
    fabric: Mapping[str, LinkPast] = {}
    """By port, or GPU as `GPU 3`: the growth of its counters."""
    slot: int = 0
    """The number of the FABRIC_EVERY seconds in which that was last read."""
    fabric_before: Mapping[str, LinkPast] = {}
    """The same as it was before this slot: all nodes have it, so they can be compared once a slot."""
    gpus_most: int = 0
    """The highest number of GPUs that it ever listed."""
    margins: Mapping[int, tuple[tuple[Instant, int], ...]] = {}
    """By GPU: its recent margins below WARM, without a gap, the newest last."""
    slowed: Mapping[tuple[int, str], Instant] = {}
    """By GPU and reason, such as (3, hw_thermal): since when it is throttled."""
    emptied: Mapping[int, Instant] = {}
    """By GPU: when its memory became empty."""
    returned: Mapping[int, Instant] = {}
    """By GPU: when it answered again after it was lost. Only a reset brings it back."""
    floors: tuple[tuple[Instant, int], ...] = ()
    """The least memory in use (MiB) in each FLOOR_EVERY seconds, the newest last, at most FLOORS."""


GROWTHS = 16

SAME_GROWTH = 60.0
"""Growth within this many seconds is one entry: constant errors of a port fill a quarter of an hour."""

FAULTS = 64

FAULT_GAP = 600.0
"""A fault that repeats within ten minutes belongs to the same burst; nvidia_gpu_exporter looks back as far."""

WARM = 15
"""Margins up to this many degrees are recorded. A healthy GPU costs nothing."""

MARGINS = 16

FABRIC_EVERY = 30.0

FLOOR_EVERY = 600.0

FLOORS = 37
"""Six hours, and the current ten minutes."""

LATE_AFTER = 3.0
"""Periods without data after which a source is late and its numbers are dimmed."""
