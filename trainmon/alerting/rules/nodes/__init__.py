"""Rules about nodes: reachability, memory, InfiniBand, Slurm states."""
