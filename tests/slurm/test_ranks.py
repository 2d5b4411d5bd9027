"""The ranks of eight processes of PyTorch, under torchrun and under srun, as the probe and the JSON have them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.lab.slurm import Slurm
from tests.lab.torchrun import torch_python
from tests.slurm.product import SlurmProduct

pytestmark = pytest.mark.slow  # PyTorch is a download of many hundred megabytes

TRAINER = """\
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

if "RANK" not in os.environ:
    names = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS"}
    rank, ranks = (int(os.environ[name]) for name in names.values())
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=ranks)
else:
    dist.init_process_group("gloo")
loader = iter(DataLoader(range(10**9), num_workers=1 if dist.get_rank() == 0 else 0))
for step in range(1, 100_000):
    next(loader)
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 0:
        print(f" iteration {step:8}/ 100000 | lm loss: 2.{step}E+00 |", flush=True)
    elif dist.get_rank() == 5 and step == 20:
        print("[rank5]: UserWarning: the first batch was slow", flush=True)
    time.sleep(1.0)
"""


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_eight_ranks_are_known_and_their_workers_and_launchers_are_none(
    slurm: Slurm, product: SlurmProduct, launcher: str
) -> None:
    script, log = slurm.directory / "ranks.py", slurm.directory / f"{launcher}.log"
    script.write_text(TRAINER)
    train = f"{torch_python()} {script} {slurm.directory}/meet-{launcher}"
    run = f"{torch_python()} -m torch.distributed.run --standalone --nproc-per-node=8 {script}"
    command = f"srun --ntasks=1 {run}" if launcher == "torchrun" else f"srun --ntasks=8 --overcommit {train}"
    product.watch(
        '[[cluster]]\nname = "lab"\nnodes = "slurm"\nslurm_every = "15s"\nconnect = { by = "srun" }\n'
        f'[[run]]\nname = "ranks"\ncluster = "lab"\njob = "ranks"\nlog = "{log}"\n'
    )
    job = slurm.submit(
        f"#!/bin/bash\n{command}",
        "-J",
        "ranks",
        "--ntasks=8",
        "--overcommit",
        "-N",
        "1",
        "-o",
        str(log),
        "-e",
        str(log),
    )
    slurm.wait_for_state(job, "RUNNING")
    slurm.wait_for(lambda: log.exists() and "iteration" in log.read_text(), 180.0, "it trains")
    time.sleep(11)  # a process counts once it is 10 s old
    snapshot: dict[str, Any] = json.loads(product.run("snapshot", "--json", "--wait=40s").stdout)
    (found,) = (one["ranks"] for one in snapshot["runs"] if one["name"] == "ranks")
    assert found is not None, log.read_text()[-2000:]
    assert (found["launcher"], found["ranks"], found["is_ambiguous"]) == (launcher, 8, False)
    assert {name: sorted(map(int, own)) for name, own in found["nodes"].items()} == {"gpu-1": [*range(8)]}
