"""W&B: which run is active, its progress, and the names of metrics. Pure."""

from __future__ import annotations

from trainmon.analysis.wandb.active_run import label, read
from trainmon.analysis.wandb.progress import counts

__all__ = ["counts", "label", "read"]
