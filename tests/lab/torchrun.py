"""torchrun, and a training of two ranks on the CPU of which one fails. PyTorch is installed once, below the environment
of the tests: it is large. pip's own settings decide from where, and whether it is the build for the CPU."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from tests.lab.pip import environment, pip

FOLDER = Path(sys.prefix) / "torch"
PATIENCE = 900.0

TRAINER = """\
import sys
import time

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    for step in range(1, 4):
        if dist.get_rank() == 0:
            print(f" iteration {step:8}/ 100 | lm loss: 2.{step}E+00 |", flush=True)
        time.sleep(0.3)
    if dist.get_rank() == 1:
        raise ValueError("batch 4711 has the shape (7, 3)")
    dist.barrier()


main()
"""


HANGS = """\
import os
import sys
import threading
import time

import torch
import torch.distributed as dist


def dump():
    # what the watchdog of NCCL does when an operation times out
    from torch._C._distributed_c10d import _dump_fr_trace

    time.sleep(11.0)
    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"], "wb") as file:
        file.write(_dump_fr_trace())
    time.sleep(float(sys.argv[2]))
    os._exit(1)


def step(group):
    dist.all_reduce(torch.ones(10, 3))
    dist.all_reduce(torch.ones(4), group=group)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])][rank // 2]
    for _ in range(5):
        step(group)
    threading.Thread(target=dump).start()
    if sys.argv[1] == "sleeps" and rank == 2:
        time.sleep(100)
    if sys.argv[1] == "disagrees" and rank == 2:
        dist.all_gather([torch.ones(10, 3) for _ in range(4)], torch.ones(10, 3))
    step(group)
    time.sleep(100)


main()
"""
"""Four ranks with gloo. Rank 2 sleeps before an operation, or calls another one; each writes its dump."""


def torch_python() -> Path:
    """The Python that has PyTorch."""
    return _with("torch")


def frameworks_python(*more: str) -> Path:
    """The Python that has Transformers, Accelerate and Lightning, too, and more packages."""
    _with("torch")
    python = _with("transformers", "accelerate", "lightning")
    return _with(*more) if more else python


def tensorboard_python() -> Path:
    """The Python that has TensorBoard, in an environment of its own."""
    return _with("tensorboard", folder=FOLDER.with_name("tensorboard"))


def py_spy() -> Path:
    """The folder of py-spy, in an environment of its own: a trainer has it only if that is on its PATH."""
    return _with("py-spy", folder=FOLDER.with_name("py-spy")).parent


def _with(*packages: str, folder: Path = FOLDER) -> Path:
    """The Python after these packages are installed: by one process at a time, and again after one was killed."""
    python, done = folder / "bin" / "python", folder / f"{packages[0]}.installed"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not python.exists():
            environment(folder)
        if not done.exists():
            pip("--python", python, "install", *packages, timeout=PATIENCE)
            done.touch()
    return python
