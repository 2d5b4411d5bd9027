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


def torch_python() -> Path:
    """The Python that has PyTorch."""
    return _with("torch")


def frameworks_python() -> Path:
    """The Python that has Transformers, Accelerate and Lightning, too."""
    _with("torch")
    return _with("transformers", "accelerate", "lightning")


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
