"""`trainmon-tui init`: writes a first config from what Slurm and W&B report."""
