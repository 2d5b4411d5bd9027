"""A person's first look: a running job that nobody has configured, and all that can be found about it."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.end_to_end.product import Product, Screen, words
from tests.lab import nanogpt
from tests.lab.nvml import Nvml, library
from tests.lab.slurm import Slurm
from tests.lab.sshd import NESTED, Sshd
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_training import QUICKLY

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=nanogpt --nodes=1 --gres=gpu:8
#SBATCH --output=logs/%x-%j.out
{command}
"""

SHOWN = {
    "the run": r"nanogpt +\d+ +1 ",
    "step and loss": r"nanogpt +\d+ +1 +[\d,]+ +\d+\.\d+",
    "its node": r"gpu-1( +\d\d){8} ",
    "its W&B run": r"6 Charts nanogpt +gpt2-124M",
    "its curves": r"train/loss +\d+\.\d+ +-",
    "its checkpoint": r"checkpoint +ckpt\.pt committed",
    "where it saves": r"directory +\S*/out \(found, not in the config\)",
}
"""What the screen shows of it without a config, as patterns."""

DETAILS = (r"directory +\S*/nanoGPT/out \(found, not in the config\)",)
PLACES = (
    r"script +\S*/train\.sh",
    r"workdir +\S*/nanoGPT",
    r"W&B +→ tester/owt, run \w+ \(found, not in the config\)",
)
"""What the run's own screen shows, and what it shows at its end."""


@contextlib.contextmanager
def login_host(folder: Path, slurm: Slurm, server: WandbServer, **sshd_options: str) -> Iterator[LoginHost]:
    """The product on a login host of this Slurm, with a W&B key, nodes with 8 GPUs that ssh reaches, and no config."""
    driver = Nvml(folder, gpus=8)
    env = {**NESTED, "LD_LIBRARY_PATH": str(library()), "TRAINMON_LAB_NVML": str(driver.path)}
    with Sshd.start(folder / "sshd", SetEnv=words(env), **sshd_options) as sshd:
        product = LoginHost(folder, {**slurm.environ, **server.environ}, sshd)
        product.ssh_config = sshd.ssh_config(4, name="gpu-{}")
        with contextlib.closing(product):
            yield product


class LoginHost(Product):
    """The product, with the same environment for each command."""

    def __init__(self, folder: Path, environ: Mapping[str, str], sshd: Sshd) -> None:
        super().__init__(folder)
        self.environ = environ
        self.sshd = sshd

    def connections(self) -> int:
        """How often a node was dialled."""
        return self.sshd.log.read_text().count("Connection from ")

    def look(self) -> Screen:
        """The dashboard on a large terminal."""
        return self.screen(columns=200, rows=60, **self.environ)


def submit(slurm: Slurm, server: WandbServer) -> Path:
    """Queue nanoGPT's training as its user does, and wait for its second checkpoint. Returns its working directory."""
    folder = Path(tempfile.mkdtemp(dir=slurm.directory)) / "nanoGPT"
    (folder / "logs").mkdir(parents=True)
    script = folder / "train.sh"
    script.write_text(SCRIPT.format(command=shlex.join([sys.executable, str(Path(nanogpt.__file__))])))
    env = {**server.environ_in(folder), **QUICKLY, "WANDB_SILENT": "false", "HOME": str(folder)}
    slurm.ask("sbatch", f"--chdir={folder}", str(script), env=env)
    slurm.wait_for(lambda: saves(folder) >= 2, what="nanoGPT has saved")
    return folder


def saves(folder: Path) -> int:
    return sum(log.read_text().count("saving checkpoint") for log in (folder / "logs").iterdir())
