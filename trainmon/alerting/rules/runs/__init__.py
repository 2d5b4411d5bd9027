"""Rules about training runs: exits, stalls, loss, throughput, jobs, checkpoints, switches, W&B."""
