"""Looks at eight ranks of PyTorch that are tasks of a real Slurm, of which one is held up in four ways and goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.gloo import TRAINER
from tests.lab.slurm import Slurm
from tests.lab.torchrun import torch_python
from tests.slurm.product import SlurmProduct
from trainmon.job import hooks_module

pytestmark = pytest.mark.slow  # PyTorch is a download of many hundred megabytes

DOES = {
    "sleep": r"waits in `\w+`",
    "loop": "burns a core",
    "stop": r"is stopped \(state T\)",
    "input": r"waits in `\w+`",
}


def tasks(script: Path) -> dict[int, tuple[int, str]]:
    """The pid and the state of the process of each rank."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, KeyError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if str(script).encode() in words and b"python" in words[0]:
                environ = dict(pair.partition(b"=")[::2] for pair in (place / "environ").read_bytes().split(b"\0"))
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                found[int(environ[b"SLURM_PROCID"])] = int(place.name), state
    return found


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
    environ = "export OMP_NUM_THREADS=1 HOLD_S=40\n"
    command = f"{environ}srun --ntasks=8 --overcommit {torch_python()} {script} {folder} 0.02"
    words = ("-J", "looks", "--ntasks=8", "--overcommit", "-N", "1", "-o", str(log), "-e", str(log))
    job = slurm.submit(f"#!/bin/bash\n{command}", *words)
    slurm.wait_for_state(job, "RUNNING")
    slurm.wait_for(lambda: log.exists() and "iteration" in log.read_text(), 300.0, "it trains")
    time.sleep(11)  # a process counts once it is 10 s old
    plan = product.run("stacks", "looks", "--dry-run", "--wait=40s").stdout
    assert "Read the stacks of 8 ranks of looks" in plan
    assert re.search(r"gpu-1 +ranks 0-7, pids", plan)
    for how in ("sleep", "loop", "stop", "input"):
        pid, _ = tasks(script)[3]
        if how == "stop":
            os.kill(pid, signal.SIGSTOP)
        else:
            (folder / f"hold.3.{how}.0").touch()
        time.sleep(2)  # some steps, in whose time none comes
        found = product.run("ranks", "looks", "--json", "--wait=40s", timeout=180.0)
        (by_proc,) = (one for one in json.loads(found.stdout)["looks"] if one["source"] == "proc")
        assert (found.returncode, by_proc["ranks"]) == (1, [3]), by_proc
        assert re.search(rf"; rank 3 \(gpu-1\b.*\) {DOES[how]}(: differs)?, 8 of 8 read$", by_proc["summary"]), by_proc
        if how == "input":
            done = product.run("stacks", "looks", "--yes", "--wait=40s", timeout=180.0)
            said = done.stdout + done.stderr
            stands = r"stands in `train:<module> > train:asks`, line \d+: differs, 8 of 8 read"
            assert re.search(rf"rank 3 \(gpu-1\b.*\) {stands}", said), said
            (folder / "answers").write_text("go on\n")
        elif how == "stop":
            assert (
                by_proc["advice"] == f"if nobody has stopped it on purpose, `kill -CONT {pid}` on its node continues it"
            )
            assert tasks(script)[3] == (pid, "T"), "a look continues nobody"
            os.kill(pid, signal.SIGCONT)
        steps = log.read_text().count(" iteration ")
        slurm.wait_for(lambda goal=steps + 5: log.read_text().count(" iteration ") > goal, 90.0, "it trains on")
        assert "T" not in {state for _, state in tasks(script).values()}
