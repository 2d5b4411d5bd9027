"""The log of a real Hugging Face Trainer, written again by jobs of a real Slurm: what snapshot says of them."""

from __future__ import annotations

import sys

import pytest

from tests.lab import hf_trainer
from tests.lab.slurm import OVER, Slurm
from tests.slurm.product import SlurmProduct

pytestmark = pytest.mark.slow  # tests/trainmon/engine/test_trainer_bars.py decides the same without Slurm

WRITER = """\
import os, pathlib, sys, time
from tests.lab.hf_trainer import pieces
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
for piece in pieces(name):
    os.write(1, piece)
    time.sleep(0.1)
(folder / "written").touch()
while not (folder / "ends").exists():
    time.sleep(0.1)
if name != "finished":
    os.kill(os.getpid(), {"killed": 9, "stopped": 15}[name])
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name} --nodes=1 --output={folder}/log
cd {root}
exec {python} {folder}/write.py {folder} {name}
"""
RUN = '[[run]]\nname = "{name}"\ncluster = "lab"\nlog = "{folder}/log"\n'


def test_a_run_is_finished_only_when_its_job_completed(slurm: Slurm, product: SlurmProduct) -> None:
    jobs, folders = {}, {name: slurm.directory / name for name in ("finished", "killed", "stopped")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "write.py").write_text(WRITER)
        script, root = folder / "job.sh", hf_trainer.FOLDER.parents[3]
        script.write_text(SCRIPT.format(name=name, folder=folder, root=root, python=sys.executable))
        jobs[name] = slurm.ask("sbatch", "--parsable", "--export=ALL,PYTHONPATH=" + str(root), str(script)).strip()
    tables = "".join(RUN.format(name=name, folder=folder) for name, folder in folders.items())
    product.watch(f'[[cluster]]\nname = "lab"\nslurm_every = "15s"\n{tables}')
    slurm.wait_for(lambda: (folders["finished"] / "log").exists(), what="a job writes")
    for _ in range(2):
        growing = {run["name"]: run for run in product.snapshot()["runs"]}
        assert "finished" not in {run["verdict"] for run in growing.values()}, growing
    slurm.wait_for(lambda: all((folder / "written").exists() for folder in folders.values()), what="all is written")
    waiting = {run["name"]: run for run in product.snapshot()["runs"]}
    assert {run["verdict"] for run in waiting.values()} <= {"healthy", "evaluating"}, waiting
    assert waiting["finished"]["why"].endswith("; target reached, job still runs")
    for folder in folders.values():
        (folder / "ends").touch()
    for job in jobs.values():
        slurm.wait_for_state(job, *OVER)
    found = product.snapshot(status=1)["runs"]
    assert {run["name"]: (run["verdict"], run["step"], run["target_step"]) for run in found} == {
        "finished": ("finished", 150, 150), "killed": ("dead", 247, 1000), "stopped": ("dead", 380, 400),
    }  # fmt: skip
