"""Rules about GPUs: heat, slowdowns, faults, Xids and use."""

from __future__ import annotations

from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, GpuMissing, RowRemap
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuSlowdown, PowerBrake
from trainmon.alerting.rules.gpus.utilization import GpuIdle, GpuLeftover, GpuMemoryFull
from trainmon.alerting.rules.gpus.xid import XidSeen

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
