"""Rules about GPUs: heat, slowdowns, faults, Xids and use."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, GpuMissing, RowRemap, XidSeen
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuSlowdown, PowerBrake
from trainmon.alerting.rules.gpus.utilization import GpuIdle, GpuLeftover, GpuMemoryFull

GPUS: tuple[type[Rule], ...] = (
    GpuHot, GpuSlowdown, PowerBrake, EccUncorrected, RowRemap, XidSeen, GpuLost, GpuMissing, GpuMemoryFull, GpuIdle,
    GpuLeftover,
)  # fmt: skip
"""Every GPU rule, in the order of help and documents."""

__all__ = ["GPUS", "GpuLost", "GpuMissing"]
