"""Slurm as text: commands, parsers of their output, errors and reasons. Pure; Slurm 20.02 to 25."""
