"""What the loop reports: the status file, the step line, and the exception for torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.trainmon.job.hooks.conftest import Make, status
from trainmon.analysis.log_formats.progress import advance
from trainmon.analysis.log_formats.read import read_line
from trainmon.job.trainmon_hooks import Hooks
from trainmon.model import LogShape, Progress


def test_the_status_says_how_the_training_does(make: Make, tmp_path: Path, clock: SimpleNamespace) -> None:
    hooks = make()
    assert status(tmp_path)["phase"] == "starting"
    clock.now += 2
    hooks.step(7, 1.5)
    known = status(tmp_path)
    assert (known["v"], known["step"], known["loss"], known["at"]) == (1, 7, 1.5, 1e9 + clock.now)
    assert (known["phase"], known["pid"], known["host"]) == ("training", os.getpid(), os.uname().nodename)
    assert (known["kill"], known["save"]) == (str(tmp_path / "kill"), str(tmp_path / "save"))
    clock.now += 2
    hooks.poll()
    assert status(tmp_path)["phase"] == "evaluation"
    (tmp_path / "save").touch()
    hooks.step(8, 1.4)
    assert status(tmp_path)["asked"] == {"what": "save", "by": "the save switch", "at": 1e9 + clock.now, "step": 8}
    hooks.saved(8)
    known = status(tmp_path)
    assert (known["last_save"], known["phase"]) == ({"step": 8, "at": 1e9 + clock.now}, "training")
    hooks.done(9)
    assert status(tmp_path)["ended"] == {"step": 9, "at": 1e9 + clock.now, "why": "the training loop has ended"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kill.status"]  # and no temporary file


@pytest.mark.parametrize(
    ("task", "is_task"),
    [(os.getpid(), True), (os.getppid(), False), (None, False)],
    ids=["a task", "below a launcher", "without Slurm"],
)
def test_the_status_says_whether_slurm_has_started_this_process(
    task: int | None, is_task: bool, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_TASK_PID", raising=False)
    if task is not None:
        monkeypatch.setenv("SLURM_TASK_PID", str(task))
    make()
    assert status(tmp_path)["is_task"] is is_task


def test_the_status_is_written_at_most_once_a_second(
    make: Make, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = make()
    written: list[float] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: written.append(clock.now) or replace(*paths))  # type: ignore[func-returns-value]
    for step in range(1000):
        clock.now += 0.01
        hooks.step(step, 1.0)
    assert 9 <= len(written) <= 10


def test_the_place_of_the_status_is_given_or_beside_the_kill_switch(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kill", "save", "status"):
        monkeypatch.setenv(f"TRAINMON_{name.upper()}", f"{tmp_path}/of-{name}")
    monkeypatch.setenv("TRAINMON_DEADLINE", "5")
    hooks = Hooks.from_env()
    hooks.close()
    assert (hooks.kill, hooks.save, hooks.status) == tuple(
        f"{tmp_path}/of-{name}" for name in ("kill", "save", "status")
    )
    assert hooks.deadline == 5.0
    assert make(kill=None).status == str(tmp_path / "save.status")
    assert make(kill=None, save=None).status is None


def test_our_reader_reads_the_step_line(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    hooks = make(print_every=2, total=1000)
    for step in range(1, 9):
        hooks.step(step, 3.0 - step / 10, lr=3e-4, grad_norm=0.5, tokens_per_s=1234.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step: 2/1000 | loss: 2.8 | lr: 0.0003 | grad_norm: 0.5 | tokens_per_s: 1234"
    progress, shape = Progress(), LogShape()
    for at, line in enumerate(lines):
        read, shape = read_line(line, progress, shape, float(at))
        progress = progress if read is None else advance(progress, *read, float(at))
    assert (progress.step, progress.target_step, progress.loss) == (8, 1000, 2.2)
    assert (progress.learning_rate, progress.grad_norm, progress.tokens_per_s) == (3e-4, 0.5, 1234.0)


class Number:
    """As a number of numpy or torch: no int, but there is one in it."""

    def __int__(self) -> int:
        return 7

    def __mod__(self, other: int) -> int:
        return 7 % other


def test_steps_of_other_libraries_and_a_closed_output_raise_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = make()
    hooks.step(Number(), 1.0)  # type: ignore[arg-type]
    hooks.saved(Number())  # type: ignore[arg-type]
    assert (status(tmp_path)["step"], status(tmp_path)["last_save"]["step"]) == (7, 7)
    hooks._report["step"] = object()
    hooks.saved(8)
    closed = (tmp_path / "closed").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    assert make(print_every=1).step(1, 2.0) == ""


RAISES = """
import sys, trainmon_hooks
hooks = trainmon_hooks.Hooks(status=sys.argv[1])
hooks.step(4, 1.0)
raise ValueError("batch 4711 has the shape (7, 3)")
"""


def test_an_exception_is_written_where_torchrun_looks_for_it(tmp_path: Path) -> None:
    error, told = tmp_path / "error.json", tmp_path / "status"
    argv = [sys.executable, "-c", RAISES, str(told)]
    environ = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(error)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: batch 4711 has the shape (7, 3)\n")
    message = json.loads(error.read_text())["message"]
    assert message["message"] == "ValueError: batch 4711 has the shape (7, 3)"
    assert message["extraInfo"]["py_callstack"].startswith("Traceback (most recent call last):")
    assert abs(int(message["extraInfo"]["timestamp"]) - time.time()) < 300
    assert json.loads(told.read_text())["ended"]["why"] == "an exception: ValueError"
    error.write_text("of torch.distributed.elastic")
    subprocess.run(argv, env=environ, capture_output=True, timeout=120, check=False)
    assert error.read_text() == "of torch.distributed.elastic"
