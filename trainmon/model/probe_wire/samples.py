"""The probe's readings, samples and what it is told to watch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

# ---- what all lines of a probe have ----------------------------------------------------------------------------------

VERSION = 1


class Reading(msgspec.Struct, frozen=True, tag_field="k", gc=False):
    """One line of a probe, at the node's own time `t` (Unix seconds)."""

    v: Literal[1]
    t: float


# ---- readings of a host ----------------------------------------------------------------------------------------------

Probe = Literal["nvml", "nvidia-smi", "sh", "none", "prometheus"]
"""How the GPUs of a node are read: by NVML, by nvidia-smi, by the POSIX-sh fallback, or not at all; or by an exporter
that a Prometheus server scrapes. No probe sends the last one."""

PROBES_WITHOUT_GPUS: tuple[Probe, ...] = ("none", "sh")
"""Probes that report no GPUs. Without Python they report no logs and switches, either."""


class Hello(Reading, frozen=True, tag="hello", gc=False):
    """The first line: the host, and how its GPUs are read."""

    host: str
    python: str | None = None
    probe: Probe = "none"
    driver: str | None = None
    boot_time: float | None = None
    cpu_count: int | None = None
    memory_total_mib: int | None = None
    kernel_log: bool = False
    """Whether the kernel log can be read there; if not, Xids come from NVML events alone."""
    confined: bool = False
    """Whether the probe runs in a container or in a job's cgroup, where it may see only some GPUs, or none."""
    note: str | None = None
    """A sentence for the node's row, such as why the fallback is used."""


class GpuSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fast numbers of one GPU. `error` is null while it answers, else the message of the driver."""

    index: int
    error: str | None = None
    lost: bool = False
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    memory_used_mib: int | None = None
    utilization_pct: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle_mask: int | None = None
    """NVML's bit mask of clock event reasons; `THROTTLE` names the bits."""


class GpuSamples(Reading, frozen=True, tag="gpu", gc=False):
    """Every period: the fast numbers of all GPUs that the probe knows, the lost ones included."""

    g: tuple[GpuSample, ...]


class Process(msgspec.Struct, frozen=True, gc=False):
    """A process that holds memory on a GPU. Its command is untrusted text."""

    pid: int
    user: str | None = None
    memory_mib: int | None = None
    command: str | None = None
    caught: int | None = None
    """The signals that it catches: SigCgt of /proc/PID/status, where bit n - 1 is signal n."""
    environment: Mapping[str, str] = {}
    """The few variables that name its data, container and job; see collectors/probe/gpu/processes.py."""


class GpuFacts(msgspec.Struct, frozen=True, gc=False):
    """What changes slowly about one GPU. Sent before the first sample, then every 30 s."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_total_mib: int | None = None
    power_limit_w: float | None = None
    temperature_margin_c: int | None = None
    """Degrees left until the GPU slows itself down, where NVML gives it (Hopper and later)."""
    mig: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    processes: tuple[Process, ...] = ()


class OwnProcess(msgspec.Struct, frozen=True, gc=False):
    """A process of the probe's own user that holds memory on a GPU, or did so before. Untrusted texts."""

    pid: int
    command: str
    workdir: str | None = None
    stdout: str | None = None
    """The path of its standard output if that is a file."""
    started_s: float | None = None
    """When it started, in seconds after the boot."""
    parents: tuple[int, ...] = ()
    """The pids of its parent, of the parent of that, and so on."""


class GpuFactsAll(Reading, frozen=True, tag="gpus", gc=False):
    """The slow facts of all GPUs, and the number that the driver or PCI expects."""

    g: tuple[GpuFacts, ...]
    expected: int | None = None
    own: tuple[OwnProcess, ...] = ()


class Xid(Reading, frozen=True, tag="xid", gc=False):
    """An Xid, from an NVML event (index and uuid known), the kernel log (PCI address known) or Prometheus."""

    code: int
    index: int | None = None
    text: str | None = None
    source: Literal["nvml", "kernel", "prometheus"] = "nvml"


class InfinibandPort(msgspec.Struct, frozen=True, gc=False):
    """One port, as `mlx5_0/1`; `state` is the kernel's state, such as ACTIVE. Counters since the driver loaded."""

    port: str
    state: str | None = None
    link_downed: int | None = None
    errors: int | None = None
    """symbol_error + port_rcv_errors + link_error_recovery + local_link_integrity_errors."""


class HostSample(Reading, frozen=True, tag="host", gc=False):
    """Load, memory, and counters that should not grow."""

    load1: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    boot_time: float | None = None
    oom_kills: int | None = None
    """From /proc/vmstat, since boot; null before Linux 4.13."""
    network_errors: int | None = None
    """Sum of rx_errors and tx_errors over the physical interfaces, since boot."""
    infiniband: tuple[InfinibandPort, ...] = ()


class DiskSample(msgspec.Struct, frozen=True, gc=False):
    """One path. `hung` means that its statvfs has not returned; the numbers are then null."""

    path: str
    state: Literal["ok", "hung", "error"] = "ok"
    error: str | None = None
    mount: str | None = None
    filesystem: str | None = None
    """The filesystem's type, as in /proc/self/mountinfo: xfs, lustre, nfs4 …"""
    read_only: bool | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    """What a user may still write (f_bavail), not what root may."""
    total_inodes: int | None = None
    """Null where the filesystem has no fixed number (btrfs, some network filesystems)."""
    free_inodes: int | None = None


class DiskSamples(Reading, frozen=True, tag="disk", gc=False):
    """All watched paths of the node."""

    d: tuple[DiskSample, ...]


class Trouble(Reading, frozen=True, tag="trouble", gc=False):
    """A part of the probe failed; the others go on. Null text ends it.

    Parts: gpu, host, disk, log, switch, ckpt, probe.
    """

    part: str
    text: str | None = None


class Bye(Reading, frozen=True, tag="bye", gc=False):
    """The probe's last line: why it ended."""

    why: str


THROTTLE: dict[int, str] = {
    0x1: "idle",
    0x2: "app_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display",
}
"""NVML's clock event reasons (nvml.h, nvmlClocksEventReason*), named as in nvidia-smi."""


@lru_cache(1024)
def throttle_names(mask: int | None) -> tuple[str, ...]:
    """Name the set bits of a clock-event mask; unknown bits come out as hex."""
    if not mask:
        return ()
    names = tuple(name for bit, name in THROTTLE.items() if mask & bit)
    unknown = mask & ~sum(THROTTLE)
    return (*names, hex(unknown)) if unknown else names
