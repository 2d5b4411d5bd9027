"""A simulated node: eight GPUs, a host, and the readings of its probe. Pure: time is an argument.

A GPU's power follows its work, its temperature follows the power with inertia, and its clock follows the temperature.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random
from typing import Literal

import msgspec

from collectors.demo.model.inventory import GPUS, READER, TB
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    DiskSample,
    DiskSamples,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    InfinibandPort,
    Process,
)

Work = Literal["idle", "training", "saving", "starting", "hung"]

GPU_NAME = "NVIDIA H100 80GB HBM3"
GPU_MEMORY_MIB = 81_559
LIMIT_W = 700.0
SLOWDOWN_C = 87
INLET_C = 27.0
DEGREES_PER_WATT = 0.056
INERTIA: Seconds = 22.0
"""The time constant: two thirds of a temperature change happen in this time."""
BLOCKED_FAN = 1.75
"""The factor by which a hot GPU cools worse."""

UTILIZATION: dict[Work, float] = {"idle": 0.0, "training": 98.5, "saving": 12.0, "starting": 20.0, "hung": 100.0}
POWER: dict[Work, float] = {"idle": 72.0, "training": 655.0, "saving": 190.0, "starting": 125.0, "hung": 148.0}
"""A stuck collective shows 100 % utilization at low power: this distinguishes a hang from training."""

CAUGHT = 1 << (10 - 1) | 1 << (15 - 1)
"""The signals that a trainer handles: USR1, for an emergency checkpoint, and TERM."""

IDLE, POWER_CAP, HW_SLOWDOWN, HW_THERMAL = 0x1, 0x4, 0x8, 0x40

DRIVER = "570.124.06"
CPUS = 112
MEMORY_MIB = 2_063_937
PORTS = tuple(InfinibandPort(port=f"mlx5_{n}/1", state="ACTIVE", link_downed=0, errors=0) for n in range(8))
DAY = 86_400.0


class Workload(msgspec.Struct, frozen=True):
    """The work and the process on a GPU."""

    work: Work = "idle"
    memory_mib: int = 0
    user: str = ""
    command: str = ""


class Gpu:
    """A GPU. `advance` lets time pass; `sample` and `facts` are the readings of its driver."""

    def __init__(self, node: int, index: int, workload: Workload, random: Random) -> None:
        self.index = index
        self.workload = workload
        self.is_hot = False
        self.is_lost = False
        self.pid = 20_000 + 137 * node + 3 * index
        self._random = random
        self._offset = random.uniform(-2.5, 2.5)
        self._uuid = f"GPU-{random.getrandbits(32):08x}-{random.getrandbits(16):04x}-{random.getrandbits(48):012x}"
        self._corrected = random.choice((0, 0, 0, 0, 0, 0, 1, 3))
        self._power = POWER[workload.work]
        self._temperature = self._target_temperature()
        self._clock = 1980
        self._mask = 0

    def advance(self, dt: Seconds) -> None:
        throttled = self._temperature >= SLOWDOWN_C - 0.5
        share = 0.8 if throttled and self.workload.work == "training" else 1.0
        self._power = min(LIMIT_W - 2.0, POWER[self.workload.work] * (1.0 + self._random.gauss(0.0, 0.012)) * share)
        difference = self._target_temperature() - self._temperature
        self._temperature = min(96.0, self._temperature + difference * (1.0 - math.exp(-dt / INERTIA)))
        if self.workload.work == "idle":
            self._clock, self._mask = 345, IDLE
        elif throttled:
            self._clock, self._mask = 1095 + 15 * self._random.randrange(8), HW_SLOWDOWN | HW_THERMAL
        elif self._power > 0.95 * LIMIT_W:
            self._clock, self._mask = 1905 + 15 * self._random.randrange(5), POWER_CAP
        else:
            self._clock, self._mask = 1980, 0

    def _target_temperature(self) -> float:
        fan, extra = (BLOCKED_FAN, 30.0) if self.is_hot else (1.0, 0.0)
        return INLET_C + self._offset + extra + self._power * (DEGREES_PER_WATT * fan)

    def sample(self) -> GpuSample:
        if self.is_lost:
            return GpuSample(index=self.index, lost=True, error="GPU is lost")
        mean = UTILIZATION[self.workload.work]
        utilization = mean + self._random.gauss(0.0, 0.0 if mean in (0.0, 100.0) else 1.5)
        memory = self.workload.memory_mib
        if memory and self.workload.work not in ("idle", "hung"):
            memory += self._random.randrange(-48, 49, 2)
        return GpuSample(
            index=self.index,
            temperature_c=round(self._temperature),
            memory_temperature_c=round(self._temperature * 1.04 + 8),
            memory_used_mib=memory or 4,
            utilization_pct=min(100, max(0, round(utilization))),
            power_w=round(self._power, 1),
            sm_clock_mhz=self._clock,
            throttle_mask=self._mask,
        )

    def facts(self) -> GpuFacts:
        process = Process(
            pid=self.pid,
            user=self.workload.user,
            memory_mib=self.workload.memory_mib - 12,
            command=self.workload.command,
            caught=CAUGHT,
        )
        return GpuFacts(
            index=self.index,
            uuid=self._uuid,
            name=GPU_NAME,
            memory_total_mib=GPU_MEMORY_MIB,
            power_limit_w=LIMIT_W,
            temperature_margin_c=max(0, SLOWDOWN_C - round(self._temperature)),
            mig=False,
            ecc_uncorrected=0,
            ecc_corrected=self._corrected,
            remap_pending=False,
            remap_failed=False,
            processes=(process,) if self.workload.command else (),
        )


class Node:
    """A node. Its GPUs advance only when they are read, so an unread node costs nothing."""

    def __init__(self, name: str, started: Instant, workloads: Iterable[Workload], seed: int) -> None:
        self.name = name
        self.skew: Seconds = 0.0
        """The node's clock minus ours."""
        self._random = Random(f"{seed} {name}")
        self._drift = self._random.uniform(-0.03, 0.03)
        self.boot_time = started - self._random.uniform(3, 90) * DAY
        number = int(name.rpartition("-")[2])
        self.gpus = tuple(Gpu(number, index, workload, self._random) for index, workload in enumerate(workloads))
        self._advanced = 0.0
        self._errors = self._random.randrange(4)

    def clock(self, now: Instant) -> Instant:
        """The node's own clock."""
        return now + self.skew + self._drift

    def advance(self, elapsed: Seconds, workload: Workload) -> None:
        dt, self._advanced = elapsed - self._advanced, elapsed
        for gpu in self.gpus:
            gpu.workload = workload
            if dt > 0:
                gpu.advance(dt)

    def hello(self, now: Instant) -> Hello:
        return Hello(
            v=1,
            t=self.clock(now),
            host=self.name,
            python="3.10.12",
            probe="nvml",
            driver=DRIVER,
            boot_time=self.boot_time + self.skew,
            cpu_count=CPUS,
            memory_total_mib=MEMORY_MIB,
            kernel_log=True,
        )

    def samples(self, now: Instant) -> GpuSamples:
        return GpuSamples(v=1, t=self.clock(now), g=tuple(gpu.sample() for gpu in self.gpus))

    def facts(self, now: Instant) -> GpuFactsAll:
        found = tuple(gpu.facts() for gpu in self.gpus if not gpu.is_lost)
        return GpuFactsAll(v=1, t=self.clock(now), g=found, expected=GPUS)

    def host(self, now: Instant) -> HostSample:
        busy = sum(gpu.workload.work != "idle" for gpu in self.gpus)
        if self._random.random() < 0.002:
            self._errors += 1
        return HostSample(
            v=1,
            t=self.clock(now),
            load1=round(0.3 + busy * self._random.uniform(2.1, 2.6), 2),
            memory_used_mib=21_000 + busy * 61_000 + self._random.randrange(900),
            memory_total_mib=MEMORY_MIB,
            boot_time=self.boot_time + self.skew,
            oom_kills=0,
            network_errors=self._errors,
            infiniband=PORTS,
        )

    def disks(self, now: Instant, shared: Iterable[DiskSample]) -> DiskSamples:
        """Its own /tmp, and on the reader node the shared disks."""
        used = 0.11 + 0.05 * (self.boot_time % 7) / 7
        local = DiskSample(
            path="/tmp",
            mount="/",
            filesystem="ext4",
            read_only=False,
            total_bytes=TB * 7 // 4,
            free_bytes=int(TB * 7 / 4 * (1 - used)),
            total_inodes=109_051_904,
            free_inodes=108_400_217,
        )
        return DiskSamples(v=1, t=self.clock(now), d=(*(shared if self.name == READER else ()), local))
