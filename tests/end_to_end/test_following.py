"""The commands that act wait for their effect, and see it when it comes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.product import Product
from tests.lab import trainer
from tests.lab.daemons import until

Train = Callable[..., subprocess.Popen[str]]

CONFIG = """
[[cluster]]
name = "here"
every = "10s"
[[run]]
name = "llm"
log = "{work}/train.log"
checkpoints = "{work}/ckpt"
kill_switch = "{work}/kill"
save_switch = "{work}/save"
"""


@pytest.fixture
def train(product: Product) -> Iterator[Train]:
    """Starts the trainer on this machine: train("--every=20")."""
    with ExitStack() as stack:

        def start(*options: str) -> subprocess.Popen[str]:
            log = stack.enter_context((product.work / "train.log").open("w"))
            argv = [sys.executable, str(Path(trainer.__file__)), f"--checkpoints={product.work}/ckpt", *options]
            argv += [f"--kill-switch={product.work}/kill", f"--save-switch={product.work}/save"]
            process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def committed(product: Product) -> list[int]:
    return trainer.committed(product.work / "ckpt", "megatron")


def test_save_with_wait_ends_when_the_requested_checkpoint_is_there_not_a_regular_one(
    product: Product, train: Train
) -> None:
    """The trainer saves every 20 steps (8 s), a save takes 3 s, and the nodes are read every 10 s."""
    train("--every=20", "--step-s=0.4", "--save-s=3", "--layout=megatron")
    until(lambda: len(committed(product)) >= 2, "two regular checkpoints")
    config = product.config(CONFIG.format(work=product.work))
    done = product.run("save", "llm", "--yes", "--wait", "60s", "--config", str(config))
    ended = time.time()

    assert done.returncode == 0, done.stdout + done.stderr
    assert "still to come" not in done.stdout
    (requested,) = [step for step in committed(product) if step % 20]
    marker = product.work / "ckpt" / f"iter_{requested:07d}" / "metadata.json"
    assert ended - marker.stat().st_mtime < 6, "the directory is listed every 2s"
    (shown,) = re.findall(r"(\d\d:\d\d:\d\d)  .*: a new checkpoint is committed", done.stdout)
    at = time.mktime(time.strptime(f"{time.strftime('%Y-%m-%d')} {shown}", "%Y-%m-%d %H:%M:%S"))
    assert abs(at - marker.stat().st_mtime) < 2, "it is that checkpoint, not a regular one"
