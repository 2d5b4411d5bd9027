"""W&B: which run is active, its progress, and the names of metrics. Pure."""

from trainmon.analysis.wandb import client_file
from trainmon.analysis.wandb.active_run import are_separate, counts, how_it_ended, label, read, shared_checkpoints

__all__ = ["are_separate", "client_file", "counts", "how_it_ended", "label", "read", "shared_checkpoints"]
