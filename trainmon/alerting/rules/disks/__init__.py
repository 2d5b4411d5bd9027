"""Rules about disks: full, forecasts, quotas, errors."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.disks.errors import DiskHung, DiskReadOnly, QuotaUsed
from trainmon.alerting.rules.disks.usage import CheckpointsDoNotFit, DiskForecast, DiskFull, InodesFull

DISKS: tuple[type[Rule], ...] = (
    DiskFull, InodesFull, QuotaUsed, DiskForecast, CheckpointsDoNotFit, DiskHung, DiskReadOnly,
)  # fmt: skip
"""Every disk rule, in the order of help and documents."""

__all__ = ["DISKS", "DiskFull", "DiskHung", "DiskReadOnly", "InodesFull"]
