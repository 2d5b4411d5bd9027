"""torchrun, and a training of two ranks on the CPU of which one fails. PyTorch is installed once, below the environment
of the tests: it is large. pip's own settings decide from where, and whether it is the build for the CPU."""

from __future__ import annotations

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
    python = FOLDER / "bin" / "python"
    if not (FOLDER / "bin" / "torchrun").exists():
        environment(FOLDER)
        pip("--python", python, "install", "torch", timeout=PATIENCE)
    return python


def frameworks_python() -> Path:
    """The Python that has Transformers, Accelerate and Lightning, too."""
    python = torch_python()
    if not any(FOLDER.glob("lib/*/site-packages/lightning")):
        pip("--python", python, "install", "transformers", "accelerate", "lightning", timeout=PATIENCE)
    return python
