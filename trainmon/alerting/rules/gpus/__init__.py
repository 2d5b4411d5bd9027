"""Rules about GPUs: heat, slowdowns, faults, Xids and use."""

from __future__ import annotations

from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, RowRemap, XidSeen
from trainmon.alerting.rules.gpus.missing import GpuMissing
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuSlowdown, PowerBrake
from trainmon.alerting.rules.gpus.utilization import GpuIdle, GpuLeftover, GpuMemoryFull

__all__ = [
    "EccUncorrected",
    "GpuHot",
    "GpuIdle",
    "GpuLeftover",
    "GpuLost",
    "GpuMemoryFull",
    "GpuMissing",
    "GpuSlowdown",
    "PowerBrake",
    "RowRemap",
    "XidSeen",
]
