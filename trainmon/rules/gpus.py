"""All rules about GPUs, in the order of docs/alerts-and-rules.md."""

from __future__ import annotations

from trainmon.rules.base import Rule
from trainmon.rules.gpus_faults import EccUncorrected, GpuLost, GpuMissing, RowRemap
from trainmon.rules.gpus_heat import GpuHot, GpuSlowdown, PowerBrake
from trainmon.rules.gpus_use import GpuIdle, GpuLeftover, GpuMemoryFull
from trainmon.rules.gpus_xid import XidSeen

GPUS: tuple[type[Rule], ...] = (
    GpuHot,
    GpuSlowdown,
    PowerBrake,
    EccUncorrected,
    RowRemap,
    XidSeen,
    GpuLost,
    GpuMissing,
    GpuMemoryFull,
    GpuIdle,
    GpuLeftover,
)
