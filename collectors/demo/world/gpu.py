"""A simulated GPU: power follows the work, temperature follows power with inertia, clocks follow temperature."""

from __future__ import annotations

import math
from random import Random
from typing import Literal

import msgspec

from trainmon.lib import Seconds
from trainmon.model import GpuFacts, GpuSample, Process

Work = Literal["idle", "training", "saving", "starting", "hung"]

NAME = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81_559
LIMIT_W = 700.0
SLOWDOWN_C = 87
INLET_C = 27.0
DEGREES_PER_WATT = 0.056
INERTIA: Seconds = 22.0
"""Time constant: two thirds of a temperature change happen in it."""
BLOCKED_FAN = 1.75
"""How much worse the hot GPU cools."""

UTILIZATION: dict[Work, float] = {"idle": 0.0, "training": 98.5, "saving": 12.0, "starting": 20.0, "hung": 100.0}
POWER: dict[Work, float] = {"idle": 72.0, "training": 655.0, "saving": 190.0, "starting": 125.0, "hung": 148.0}
"""A stuck collective shows 100 % utilization at low power: this distinguishes a hang from training."""

CAUGHT = 1 << (10 - 1) | 1 << (15 - 1)
"""The signals that a trainer handles: USR1, for an emergency checkpoint, and TERM."""

IDLE, POWER_CAP, HW_SLOWDOWN, HW_THERMAL = 0x1, 0x4, 0x8, 0x40


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
        power = POWER[self.workload.work] * (1.0 + self._random.gauss(0.0, 0.012))
        if throttled and self.workload.work == "training":
            power *= 0.8
        self._power = min(LIMIT_W - 2.0, power)
        self._temperature += (self._target_temperature() - self._temperature) * (1.0 - math.exp(-dt / INERTIA))
        self._temperature = min(96.0, self._temperature)
        if self.workload.work == "idle":
            self._clock, self._mask = 345, IDLE
        elif throttled:
            self._clock, self._mask = 1095 + 15 * self._random.randrange(8), HW_SLOWDOWN | HW_THERMAL
        elif self._power > 0.95 * LIMIT_W:
            self._clock, self._mask = 1905 + 15 * self._random.randrange(5), POWER_CAP
        else:
            self._clock, self._mask = 1980, 0

    def _target_temperature(self) -> float:
        cooling = DEGREES_PER_WATT * (BLOCKED_FAN if self.is_hot else 1.0)
        extra = 30.0 if self.is_hot else 0.0
        return INLET_C + self._offset + extra + self._power * cooling

    def sample(self) -> GpuSample:
        if self.is_lost:
            return GpuSample(index=self.index, lost=True, error="GPU is lost")
        mean = UTILIZATION[self.workload.work]
        spread = 0.0 if mean in (0.0, 100.0) else 1.5
        utilization = min(100, max(0, round(mean + self._random.gauss(0.0, spread))))
        return GpuSample(
            index=self.index,
            temperature_c=round(self._temperature),
            memory_temperature_c=round(self._temperature * 1.04 + 8),
            memory_used_mib=self._memory(),
            utilization_pct=utilization,
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
            name=NAME,
            memory_total_mib=MEMORY_MIB,
            power_limit_w=LIMIT_W,
            temperature_margin_c=max(0, SLOWDOWN_C - round(self._temperature)),
            mig=False,
            ecc_uncorrected=0,
            ecc_corrected=self._corrected,
            remap_pending=False,
            remap_failed=False,
            processes=(process,) if self.workload.command else (),
        )

    def _memory(self) -> int:
        noise = 0 if self.workload.work in ("idle", "hung") else self._random.randrange(-48, 49, 2)
        return self.workload.memory_mib + noise if self.workload.memory_mib else 4
