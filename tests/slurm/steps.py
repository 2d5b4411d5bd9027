"""Jobs that sleep, and the steps of our probes in them."""

from __future__ import annotations

from tests.lab.slurm import Slurm

QUICK = 1.0
"""Within this many seconds a step starts, and ends."""

TRIES = 5
"""Other tests may need the processor: the quickest of some tries counts."""


def own_steps(slurm: Slurm) -> list[str]:
    """The ids of the running steps of our probes, with their nodes."""
    rows = slurm.squeue("--steps", "-h", "-o", "%j %i %N").splitlines()
    return [row.removeprefix("trainmon ") for row in rows if row.startswith("trainmon ")]


def sleeping(slurm: Slurm, *options: str) -> str:
    job_id = slurm.submit("sleep 3600", "--gres=gpu:2", *options)
    slurm.wait_for_state(job_id, "RUNNING")
    return job_id
