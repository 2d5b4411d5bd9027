"""W&B: which run is active, its progress, and the names of metrics. Pure."""

from __future__ import annotations

from trainmon.analysis.wandb import client_file
from trainmon.analysis.wandb.active_run import are_separate, how_it_ended, label, read, shared_checkpoints
from trainmon.analysis.wandb.progress import counts

__all__ = ["are_separate", "client_file", "counts", "how_it_ended", "label", "read", "shared_checkpoints"]
