"""Rules about disks: full, forecasts, quotas, errors."""

from __future__ import annotations

from trainmon.alerting.rules.disks.errors import DiskHung, DiskReadOnly
from trainmon.alerting.rules.disks.forecast import CheckpointsDoNotFit, DiskForecast
from trainmon.alerting.rules.disks.quota import QuotaUsed
from trainmon.alerting.rules.disks.usage import DiskFull, InodesFull

__all__ = ["CheckpointsDoNotFit", "DiskForecast", "DiskFull", "DiskHung", "DiskReadOnly", "InodesFull", "QuotaUsed"]
