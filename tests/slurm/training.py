"""A training on the lab's Slurm: its batch script, switches, checkpoints and log, and the config that watches it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.lab import trainer
from tests.lab.slurm import Slurm

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes=2 --gres=gpu:8
#SBATCH --output={folder}/%j.log
#SBATCH --open-mode=append
{run}
"""

STEP = "srun --ntasks=1 --nodes=1 {command}"
"""The trainer as a step of its own: a signal to the steps reaches it, one to the batch shell does not."""

CAUGHT = """\
trap 'echo "the script caught USR1"; kill -USR1 $trainer; wait $trainer' USR1
{command} &
trainer=$!
wait $trainer
wait $trainer
"""
"""The trainer as a child of the batch script, which hands a signal on."""


class Training:
    """One run of the config. It saves when it is told to, hardly ever by itself."""

    def __init__(
        self, slurm: Slurm, name: str, *options: str, layout: str = "megatron", lines: str = "megatron", how: str = STEP
    ) -> None:
        self.slurm = slurm
        self.name = name
        self.layout = layout
        self.folder = slurm.directory / name
        self.folder.mkdir()
        self.checkpoints = self.folder / "checkpoints"
        self.checkpoints.mkdir()
        self.kill_switch = self.folder / "kill-switch"
        self.save_switch = self.folder / "save-switch"
        command = shlex.join([
            sys.executable, str(Path(trainer.__file__)), f"--checkpoints={self.checkpoints}", f"--layout={layout}",
            f"--lines={lines}", f"--kill-switch={self.kill_switch}", f"--save-switch={self.save_switch}",
            "--every=100000", *options,
        ])  # fmt: skip
        self.script = self.folder / "train.slurm"
        run = how.format(command=command)
        self.script.write_text(SCRIPT.format(name=name, folder=self.folder, run=run))

    def submit(self, *options: str) -> str:
        """Queue it; its log is where the script says."""
        return self.slurm.ask("sbatch", "--parsable", *options, str(self.script)).strip()

    def start(self, *options: str, steps: int = 3) -> str:
        """Queue it, and wait until it has made some steps."""
        job_id = self.submit(*options)
        self.slurm.wait_for(lambda: self.steps(job_id) >= steps, what=f"{self.name} makes steps")
        return job_id

    def log(self, job_id: str) -> str:
        path = self.folder / f"{job_id}.log"
        return path.read_text() if path.exists() else ""

    def steps(self, job_id: str) -> int:
        """How many step lines its log has."""
        return self.log(job_id).count("elapsed time per iteration") + self.log(job_id).count(" step: ")

    def committed(self) -> list[int]:
        """The steps of the whole checkpoints, by the trainer's own rule."""
        return trainer.committed(self.checkpoints, self.layout)

    def config(self, **cluster: str) -> str:
        """A trainmon.toml that watches it."""
        settings = {"name": "lab", "every": "1s", "slurm_every": "15s", **cluster}
        return f"[[cluster]]\n{lines_of(settings)}{self.table()}"

    def table(self) -> str:
        """Its own table of a config."""
        settings = {
            "name": self.name, "cluster": "lab", "job": self.name, "checkpoints": self.checkpoints,
            "script": self.script, "kill_switch": self.kill_switch, "save_switch": self.save_switch,
        }  # fmt: skip
        return f"\n[[run]]\n{lines_of(settings)}"


def lines_of(settings: Mapping[str, object]) -> str:
    return "".join(f'{key} = "{value}"\n' for key, value in settings.items())
