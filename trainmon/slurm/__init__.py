"""Slurm as text: the commands it is asked with, what it answers, and what its errors mean. Pure; 20.02 to 25."""
