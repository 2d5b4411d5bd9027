"""trainmon-run under the real Slurm: each signal comes exactly as often as without it, and the job ends alike."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from tests.lab.slurm import Slurm
from tests.trainmon.job.commands import TRAINER, wrapped

KINDS = {"srun": "srun {}", "batch": "{}", "exec": "exec {}"}
"""How a batch script starts its command."""
WAYS = {
    "scancel": ("scancel",),
    "USR1 to the steps": ("scancel", "-s", "USR1"),
    "USR1 to all": ("scancel", "-f", "-s", "USR1"),
    "USR1 to the script": ("scancel", "-b", "-s", "USR1"),
    "TERM to the script": ("scancel", "-b", "-s", "TERM"),
    "stop and continue": ("scontrol", "suspend"),
}

UNTOLD = 4.0
"""Seconds after which a signal has not reached the trainer: a batch script without a step gets none of the steps'."""


def outcome(slurm: Slurm, folder: Path, kind: str, way: str, before: list[str]) -> tuple[list[str], str, str]:
    """The signals that the trainer was told, and the state and exit code of its job."""
    folder.mkdir()
    folder.chmod(0o777)
    told = folder / "told"
    (folder / "trainer.py").write_text(TRAINER)
    command = shlex.join([*before, sys.executable, str(folder / "trainer.py"), str(told)])
    out = ("-o", str(folder / "out"), "--no-requeue")
    job = slurm.submit(f"#!/bin/bash\n{KINDS[kind].format(command)}", "-J", "run", *out)
    slurm.wait_for(lambda: told.exists() and "ready" in told.read_text(), what="the trainer is ready")
    if WAYS[way][0] == "scontrol":
        slurm.scontrol("suspend", job)
        slurm.scontrol("resume", job)
    else:
        slurm.ask(*WAYS[way], job)
    deadline = time.monotonic() + UNTOLD
    while len(told.read_text().splitlines()) < 2 and not is_over(slurm, job) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # a second one would come at once
    signals = sorted(told.read_text().splitlines()[1:])
    if not is_over(slurm, job):
        slurm.ask("scancel", job)
    slurm.wait_for(lambda: is_over(slurm, job), what="the job has ended")
    found = slurm.job(job)
    return signals, found["JobState"], found["ExitCode"]


def is_over(slurm: Slurm, job: str) -> bool:
    return slurm.job(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_told_and_ends_as_without_it(kind: str, way: str, slurm: Slurm, tmp_path: Path) -> None:
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(0o755)
    bare = outcome(slurm, tmp_path / "bare", kind, way, [])
    assert outcome(slurm, tmp_path / "wrapped", kind, way, wrapped(tmp_path)) == bare
