"""Polls Slurm's queue and nodes."""
