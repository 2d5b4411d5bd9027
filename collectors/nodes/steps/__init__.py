"""Probes as steps of the user's own job: one srun for all nodes of a job, and a Shell for each of them."""
