"""The demo's Slurm."""
