"""Acceptance stories of alerting, on a fake clock: what an operator meets, what is told of it, and nothing else."""
