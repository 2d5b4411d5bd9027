"""A simulated node: eight GPUs and a host, and the readings of its probe. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from collectors.demo.model.inventory import GPUS, READER, TB
from collectors.demo.world.gpu import Gpu, Workload
from trainmon.lib import Instant, Seconds
from trainmon.model import DiskSample, DiskSamples, GpuFactsAll, GpuSamples, Hello, HostSample, InfinibandPort

DRIVER = "570.124.06"
CPUS = 112
MEMORY_MIB = 2_063_937
PORTS = tuple(InfinibandPort(port=f"mlx5_{n}/1", state="ACTIVE", link_downed=0, errors=0) for n in range(8))
DAY = 86_400.0


class Node:
    """A node. Its GPUs advance only when they are read, so an unread node costs nothing."""

    def __init__(self, name: str, started: Instant, workloads: Iterable[Workload], seed: int) -> None:
        self.name = name
        self.skew: Seconds = 0.0
        """Its clock minus ours."""
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

    def advance(self, elapsed: Seconds) -> None:
        dt, self._advanced = elapsed - self._advanced, elapsed
        if dt > 0:
            for gpu in self.gpus:
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
        answering = tuple(gpu.facts() for gpu in self.gpus if not gpu.is_lost)
        return GpuFactsAll(v=1, t=self.clock(now), g=answering, expected=GPUS)

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
