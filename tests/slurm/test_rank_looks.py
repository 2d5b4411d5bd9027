"""Looks at eight ranks of PyTorch that are tasks of a real Slurm, of which one is held up and goes on."""

from __future__ import annotations

import json
import os
import re
import time

import pytest

from tests.lab.gloo import TRAINER
from tests.lab.slurm import Slurm
from tests.lab.torchrun import torch_python
from tests.slurm.product import SlurmProduct
from trainmon.job import hooks_module

pytestmark = pytest.mark.slow  # PyTorch is a download of many hundred megabytes


def test_the_rank_that_is_held_up_is_named_with_its_node(slurm: Slurm, product: SlurmProduct) -> None:
    folder = slurm.directory / "looks"
    folder.mkdir()
    script, log = folder / "train.py", folder / "training.log"
    script.write_text(TRAINER)
    (folder / "trainmon_hooks.py").write_text(hooks_module())
    os.mkfifo(folder / "answers")
    product.watch(
        '[[cluster]]\nname = "lab"\nnodes = "slurm"\nslurm_every = "15s"\nconnect = { by = "srun" }\n'
        f'[[run]]\nname = "looks"\ncluster = "lab"\njob = "looks"\nlog = "{log}"\n'
    )
    command = f"export OMP_NUM_THREADS=1\nsrun --ntasks=8 --overcommit {torch_python()} {script} {folder} 0.02"
    words = ("-J", "looks", "--ntasks=8", "--overcommit", "-N", "1", "-o", str(log), "-e", str(log))
    job = slurm.submit(f"#!/bin/bash\n{command}", *words)
    slurm.wait_for_state(job, "RUNNING")
    slurm.wait_for(lambda: log.exists() and "iteration" in log.read_text(), 300.0, "it trains")
    time.sleep(11)  # a process counts once it is 10 s old
    plan = product.run("stacks", "looks", "--dry-run", "--wait=40s").stdout
    assert "Read the stacks of 8 ranks of looks" in plan
    assert re.search(r"gpu-1 +ranks 0-7, pids", plan)
    (folder / "hold.3.input.0").touch()
    time.sleep(2)  # some steps, in whose time none comes
    found = product.run("ranks", "looks", "--json", "--wait=40s", timeout=180.0)
    (by_proc,) = (one for one in json.loads(found.stdout)["looks"] if one["source"] == "proc")
    assert (found.returncode, by_proc["ranks"]) == (1, [3]), by_proc
    assert re.search(r"; rank 3 \(gpu-1\b.*\) waits in `\w+`: differs, 8 of 8 read$", by_proc["summary"]), by_proc
    done = product.run("stacks", "looks", "--yes", "--wait=40s", timeout=180.0)
    said = done.stdout + done.stderr
    assert re.search(
        r"rank 3 \(gpu-1\b.*\) stands in `train:<module> > train:asks`, line \d+: differs, 8 of 8 read", said
    ), said
    steps = log.read_text().count(" iteration ")
    (folder / "answers").write_text("go on\n")
    slurm.wait_for(lambda: log.read_text().count(" iteration ") > steps + 5, 60.0, "it trains on")
