"""trainmon-run under the real Slurm: signals come exactly as often as without it, and commands and jobs end alike."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab.slurm import Slurm
from tests.trainmon.job.commands import TRAINER, state_of, wrapped

UNTOLD = 4.0
"""Seconds after which a signal has not reached the trainer: a batch script without a step gets none of the steps'."""


class Running(NamedTuple):
    """A trainer that runs in a job."""

    slurm: Slurm
    job: str
    told: Path
    first: int
    """What the batch script has started: the trainer, or trainmon-run."""
    trainer: int

    def signals(self) -> list[str]:
        return sorted(self.told.read_text().splitlines()[1:])

    def is_stopped(self) -> bool:
        return all(state_of(pid) == "T" for pid in {self.first, self.trainer})

    def is_over(self) -> bool:
        running = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")
        return self.slurm.job(self.job)["JobState"] not in running

    def wait(self, fact: Callable[[], bool]) -> None:
        """Wait for a fact, or until the job is over: not all signals reach the trainer."""
        deadline = time.monotonic() + UNTOLD
        while not self.is_over() and not fact() and time.monotonic() < deadline:
            time.sleep(0.1)


def scancel(one: Running, name: str, *options: str) -> None:
    one.slurm.ask("scancel", *options, "-s", name, one.job)


KINDS = {"srun": "srun {}", "batch": "{}", "exec": "exec {}"}
"""How a batch script starts its command."""

TARGETS: dict[str, Callable[[Running, str], None]] = {
    "the process": lambda one, name: os.kill(one.first, signal.Signals[f"SIG{name}"]),
    "its group": lambda one, name: os.killpg(os.getpgid(one.first), signal.Signals[f"SIG{name}"]),
    "the steps": scancel,
    "the job": lambda one, name: scancel(one, name, "-f"),
    "the script": lambda one, name: scancel(one, name, "-b"),
}
ENDS = {
    "scancel": lambda one, _: one.slurm.ask("scancel", one.job),
    "suspend": lambda one, name: one.slurm.scontrol("resume" if name == "CONT" else "suspend", one.job),
}
WAYS = [*((target, name) for target in TARGETS for name in ("TERM", "USR1", "INT", "HUP", "TSTP")),
        ("scancel", "TERM"), ("suspend", "TSTP")]  # fmt: skip

RACES = [("srun", ("the job", "TERM")), ("srun", ("the job", "HUP"))]
"""They end the script and srun at once, and each ends the step: how many of Slurm's signals come first is chance."""

OWN = {"SIGCONT", "SIGTERM"}
"""What Slurm sends to the steps of a job whose script has ended."""


def outcome(
    slurm: Slurm, folder: Path, kind: str, way: tuple[str, str], before: list[str]
) -> tuple[list[str], str, str]:
    """The signals that the trainer was told, and the state and exit code of its job."""
    folder.mkdir()
    told = folder / "told"
    (folder / "trainer.py").write_text(TRAINER)
    command = shlex.join([*before, sys.executable, str(folder / "trainer.py"), str(told)])
    job = slurm.submit(f"#!/bin/bash\n{KINDS[kind].format(command)}", "-o", str(folder / "out"), "--no-requeue")
    slurm.wait_for(lambda: told.exists() and "ready" in told.read_text(), what="the trainer is ready")
    trainer = int(told.read_text().split()[1])
    first = int(Path(f"/proc/{trainer}/stat").read_text().rpartition(")")[2].split()[1]) if before else trainer
    one = Running(slurm, job, told, first, trainer)
    target, name = way
    tell = (TARGETS | ENDS)[target]
    tell(one, name)
    if name == "TSTP":
        one.wait(one.is_stopped)
        if not one.is_over():
            tell(one, "CONT")
    one.wait(lambda: bool(one.signals()))
    time.sleep(0.5)  # a second one would come at once
    signals = one.signals()
    if not one.is_over():
        with contextlib.suppress(ProcessLookupError):
            for pid, number in ((first, signal.SIGCONT), (trainer, signal.SIGCONT), (trainer, signal.SIGTERM)):
                os.kill(pid, number)
    slurm.wait_for(one.is_over, what="the job has ended")
    found = slurm.job(job)
    return signals, found["JobState"], found["ExitCode"]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[1]} to {way[0]}")
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_told_and_ends_as_without_it(kind: str, way: tuple[str, str], slurm: Slurm, tmp_path: Path) -> None:
    bare, *bare_end = outcome(slurm, tmp_path / "bare", kind, way, [])
    signals, *end = outcome(slurm, tmp_path / "wrapped", kind, way, wrapped(tmp_path))
    assert end == bare_end
    assert signals == bare or ((kind, way) in RACES and set(signals) <= OWN and set(bare) <= OWN)
    assert len(signals) == len(set(signals))
