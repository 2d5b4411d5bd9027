"""Sources, nodes and GPUs: the latest numbers, and what is remembered of a node. All of it is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.probe_wire import GpuFacts, InfinibandPort, Probe

Health = Literal["ok", "late", "down", "off"]
"""ok: answers. late: older than 3 periods. down: failed, see its error. off: not wanted now, no fault."""

SourceKind = Literal["node", "slurm", "wandb", "files", "daemon"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One data source, such as `node:gpu-001`, with its health and age."""

    name: str
    kind: SourceKind
    cluster: str
    health: Health = "late"
    seen_at: Instant | None = None
    """When it last sent data, by our clock."""
    period: Seconds = 2.0
    phase: Literal["waiting", "connecting", "prompting", "up", "retrying", "held", "off"] = "waiting"
    """What the collector does. held: it does not reconnect until a person requests it (login needed or refused)."""
    retry_at: Instant | None = None
    error: str | None = None
    hint: str | None = None
    bad_lines: int = 0
    """Invalid lines since the start: not JSON, too long, or of another version."""
    stderr: str | None = None
    """The last line on the remote standard error."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a login asks. The answer never becomes part of any value."""

    id: int
    host: str
    title: str
    """What asks, such as: Password, Passphrase for ~/.ssh/id_ed25519, Duo two-factor."""
    instructions: str = ""
    fields: tuple[tuple[str, bool], ...] = ()
    """(text, echo) for each answer wanted."""


class Gpu(GpuFacts, frozen=True, kw_only=True, gc=False):
    """One GPU of a node: its slow facts and its latest numbers. `state` lost: it fell off the bus or vanished; error:
    it answers with an error."""

    state: Literal["ok", "lost", "error"] = "ok"
    error: str | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    memory_used_mib: int | None = None
    utilization_pct: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    last_xid: int | None = None
    last_xid_at: Instant | None = None


class GpuAverage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU over the last minutes: a mean in which what is new weighs most. One sample says little of a GPU."""

    index: int
    since: Instant
    """Since when it is followed without a gap."""
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
    host_at: Instant | None = None
    troubles: Mapping[str, str] = {}
    """Current errors of its probe, by part: gpu, host, disk, log, switch, probe."""
    scheduler_state: str | None = None
    scheduler_reason: str | None = None
    paces: tuple[GpuAverage, ...] = ()
    """Its GPUs over the last minutes."""


class Growth(NamedTuple):
    """A counter grew from `first` to `last`, at most a minute, by so much."""

    first: Instant
    last: Instant
    by: int


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A counter that should not grow. One that fell was set anew (a reboot, a driver loaded), and is counted from
    there."""

    value: int
    grown: tuple[Growth, ...] = ()
    """The newest last, at most GROWTHS."""

    def since(self, at: Instant) -> int:
        """How much it grew since then."""
        return sum(growth.by for growth in self.grown if growth.last >= at)


class Fault(msgspec.Struct, frozen=True, gc=False):
    """One fault code of one GPU, from its first to its last of a burst: no more than FAULT_GAP apart."""

    code: int
    index: int | None
    """The GPU; null for an NVSwitch, or where the driver does not say."""
    first_at: Instant
    last_at: Instant
    count: int = 1
    text: str | None = None
    """What the kernel log said with the last; null where only NVML told it."""
    is_switch: bool = False
    """Whether it is an SXid."""


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node, what its readings told one after another."""

    counters: Mapping[str, Counter] = {}
    """By name: `oom_kills`, `ecc 3`, `link_downed mlx5_0/1`, `errors mlx5_0/1`."""
    faults: tuple[Fault, ...] = ()
    """The newest last, at most FAULTS."""
    booted_at: Instant | None = None
    """When it booted last, by our clock, and by its own: a clock that is set anew moves only one of them."""
    boot_time: Instant | None = None
    rebooted_at: Instant | None = None
    """When it booted while we watched: the boot before was another."""
    links: tuple[str, ...] = ()
    """InfiniBand ports that were ACTIVE once: one that never was is no fault."""
    gpus_most: int = 0
    """The most GPUs that it ever listed."""
    margins: Mapping[int, tuple[tuple[Instant, int], ...]] = {}
    """By GPU, its recent margins: those below WARM, without a break, the newest last."""
    slowed: Mapping[tuple[int, str], Instant] = {}
    """Since when a GPU is slowed down for a reason: (3, hw_thermal)."""
    emptied: Mapping[int, Instant] = {}
    """By GPU, when the last of its memory was let go."""
    floors: tuple[tuple[Instant, int], ...] = ()
    """Of each FLOOR_EVERY seconds the least memory (MiB) that was in use, the newest last, at most FLOORS."""


GROWTHS = 16

SAME_GROWTH = 60.0
"""Growth within so many seconds is one entry: a port that errs all the time is seen for a quarter of an hour."""

FAULTS = 64

FAULT_GAP = 600.0
"""A fault that comes again within ten minutes is the same burst; nvidia_gpu_exporter looks back as far."""

WARM = 15
"""Degrees of margin from which on margins are remembered: a GPU that is well costs nothing."""

MARGINS = 16

FLOOR_EVERY = 600.0

FLOORS = 37
"""Six hours, and the ten minutes that are not over."""

LATE_AFTER = 3.0
"""Periods without data after which a source is late and its numbers are dimmed."""
