"""Processes on GPUs: which signals they catch, for whoever wants to send one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from collectors.probe.gpu.card import Processes
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe, until
from trainmon.model import GpuFactsAll

USR1 = 1 << signal.SIGUSR1 - 1
CATCHES = "import signal, sys; input(); signal.signal(signal.SIGUSR1, print); print('set', flush=True); input()"


def test_the_signals_that_a_process_catches_are_reported_as_they_are_now():
    card: Any = SimpleNamespace(index=0, running=[])
    processes = Processes()
    with subprocess.Popen([sys.executable, "-c", CATCHES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        card.running.append((trainer.pid, 1, None))
        processes.update(card)
        processes.look_up([card])
        assert not processes.of(card)[0]["caught"] & USR1
        trainer.stdin.write(b"\n")
        trainer.stdin.flush()
        assert trainer.stdout.readline() == b"set\n"
        processes.look_up([card])
        assert processes.of(card)[0]["caught"] & USR1
        trainer.communicate(b"\n")
    processes.look_up([card])
    assert processes.of(card)[0]["caught"] is None, "it is gone"


def test_a_status_without_the_line_reports_nothing(tmp_path: Path):
    folder = tmp_path / "proc" / "7"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tx\n")
    assert Processes(str(tmp_path)).caught_signals(7) is None
    (folder / "status").write_text("Name:\tSigCgt:\nSigCgt:\tfffffffe7ffbfeff\n")
    assert Processes(str(tmp_path)).caught_signals(7) == 0xFFFFFFFE7FFBFEFF


def test_only_the_variables_that_name_data_and_container_are_read_of_an_environment(tmp_path: Path):
    given = {"SLURM_JOB_ID": "88", "TRAINMON_DATA_MANIFEST": "/fsx/m.json", "SINGULARITY_CONTAINER": ""}
    secret = {"WANDB_API_KEY": "not-to-be-read", "TRAINMON_TOKEN": "not-to-be-read"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**given, **secret}) as trainer:
        nvml = Nvml(tmp_path).process(0, trainer.pid, 100)
        with RunningProbe(nvml.environment(), python=sys.executable) as probe:
            facts = probe.wait(GpuFactsAll, lambda line: any(one.environment for one in line.g[0].processes))
        trainer.communicate(b"\n")
    (process,) = facts.g[0].processes
    assert process.environment == {"SLURM_JOB_ID": "88", "TRAINMON_DATA_MANIFEST": "/fsx/m.json"}
    assert Processes(str(tmp_path)).environment(7) == {}, "of a process of somebody else"


def test_the_mask_crosses_the_wire(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", CATCHES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        trainer.stdin.write(b"\n")
        trainer.stdin.flush()
        assert trainer.stdout.readline() == b"set\n"
        nvml = Nvml(tmp_path).process(0, trainer.pid, 100).process(0, 4_190_000, 100)
        with RunningProbe(nvml.environment(), python=sys.executable) as probe:
            facts = probe.wait(GpuFactsAll, lambda line: any(one.user for one in line.g[0].processes))
        trainer.communicate(b"\n")
    masks = {one.pid: one.caught for one in facts.g[0].processes}
    assert masks[4_190_000] is None
    assert (masks[trainer.pid] or 0) & USR1


def test_our_own_process_is_described_until_it_ends_though_the_driver_forgets_it(tmp_path: Path):
    card: Any = SimpleNamespace(index=0, running=[(1, 1, None)])
    processes = Processes()
    out = tmp_path / "é.log"
    with out.open("wb") as log:
        trainer = subprocess.Popen(["sleep", "60"], stdout=log, cwd=tmp_path)
        silent = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, cwd="/")
    card.running += [(one.pid, 1, None) for one in (trainer, silent)]
    rows = [
        {"pid": trainer.pid, "command": "sleep 60", "workdir": str(tmp_path), "stdout": str(out)},
        {"pid": silent.pid, "command": "sleep 60", "workdir": "/", "stdout": None},
    ]
    for one in (trainer, silent):  # between exec and its first instruction a process has no command
        until(lambda one=one: Path(f"/proc/{one.pid}/cmdline").read_bytes() == b"sleep\x0060\0")
    processes.update(card)
    processes.look_up([card], own=True)
    found = [dict(row) for pid, (_, row) in processes.own.items() if pid != 1]
    started = [row.pop("started_s") for row in found]
    parents = [row.pop("parents") for row in found]
    assert parents[0] == parents[1]
    assert parents[0][:2] == [os.getpid(), os.getppid()][: len(parents[0])]
    ticks = Path(f"/proc/{trainer.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert (found, started[0]) == (rows, int(ticks) / os.sysconf("SC_CLK_TCK"))
    card.running = []
    processes.update(card)
    out.unlink()
    processes.look_up([card], own=True)
    assert processes.own[trainer.pid][1] == {**rows[0], "stdout": None, "started_s": started[0], "parents": parents[0]}
    for one in (trainer, silent):
        one.kill()
        one.wait()
    processes.look_up([card], own=True)
    assert not processes.own.keys() - {1}, "they have ended"
    processes.look_up([card])
    assert processes.own == {}, "nobody asks for them"
