"""Domain logic without I/O: runs, checkpoints, disks, GPUs, nodes, W&B, log formats. Pure."""
