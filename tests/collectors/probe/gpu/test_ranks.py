"""The ranks of processes, by what their launchers have set: read once, from few variables, and only if it is sure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors.probe.gpu.card import MIB
from collectors.probe.gpu.ranks import TICKS, Ranks
from tests.collectors.probe import interpreters
from tests.collectors.probe.wire import ManualClock, readings_of
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe
from trainmon.analysis.attempts.ranks import place_of, rank_map
from trainmon.engine.reducers.nodes import read
from trainmon.model import GpuFactsAll, NodeReading, RankProcess, RankProcesses, RankSteps, RankWait

TORCHRUN = {"LOCAL_RANK": "1", "WORLD_SIZE": "16", "TORCHELASTIC_RUN_ID": "llm-7", "SLURM_JOB_ID": "88"}
TASK = {"SLURM_PROCID": "3", "SLURM_NTASKS": "16", "SLURM_LOCALID": "3", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "88"}
SECRET = "do-not-send-4711"


class Proc:
    """A /proc of a machine that has run for 1000 s."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("uptime", "1000.00 4000.00\n")
        self.namespace("pid:[4026531836]")
        self.ranks = Counting({}, str(root))

    def write(self, name: str, text: str) -> None:
        path = self.root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def namespace(self, name: str) -> None:
        link = self.root / "proc" / "self" / "ns" / "pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(
        self, pid: int, parent: int, *, at: float = 500.0, command: str = "python train.py", **env: str
    ) -> Proc:
        fields = ["S", str(parent), *["0"] * 17, str(int(at * TICKS)), "0"]
        self.write(f"{pid}/stat", f"{pid} (a ) b) {' '.join(fields)}\n")
        self.write(f"{pid}/cmdline", command.replace(" ", "\0") + "\0")
        self.write(f"{pid}/environ", "\0".join(f"{name}={value}" for name, value in env.items()) + "\0")
        return self

    def end(self, pid: int) -> Proc:
        shutil.rmtree(self.root / "proc" / str(pid))
        return self

    def read(self) -> list[RankProcess]:
        readings: list[RankProcesses] = readings_of(self.ranks, slow=True)
        return list(readings[0].r) if readings else []


class Counting(Ranks):
    """Remembers what it has read."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.names: list[tuple[str, ...]] = []

    def text(self, *names: str) -> str:
        self.names.append(names)
        return super().text(*names)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def found(proc: Proc) -> list[tuple[int, str, int, int]]:
    return [(one.pid, one.launcher, one.rank, one.ranks) for one in proc.read()]


def test_a_rank_of_torchrun_with_its_workers_is_one_rank(proc: Proc) -> None:
    proc.process(10, 1, command="torchrun train.py", SLURM_JOB_ID="88").process(11, 10, RANK="9", **TORCHRUN)
    proc.process(12, 11, RANK="9", **TORCHRUN).process(13, 12, RANK="9", **TORCHRUN)
    proc.process(14, 10, **{"RANK": "8", **TORCHRUN, "LOCAL_RANK": "0"})
    nine, eight = proc.read()
    assert nine == RankProcess(11, 500.0, (12, 13), "torchrun", 9, 16, 1, 88, "llm-7")
    assert (eight.pid, eight.rank, eight.local_rank, eight.workers) == (14, 8, 0, ())


def test_the_workers_that_a_dead_rank_leaves_are_no_ranks(proc: Proc) -> None:
    proc.process(11, 1, RANK="9", **TORCHRUN).process(12, 11, RANK="9", **TORCHRUN)
    assert [one.pid for one in proc.read()] == [11]
    proc.end(11).process(12, 1, RANK="9", **TORCHRUN)
    assert readings_of(proc.ranks, slow=True)[0].r == ()


def test_the_batch_shell_has_a_number_of_slurm_and_is_no_rank(proc: Proc) -> None:
    proc.process(10, 1, command="/bin/bash script", SLURM_PROCID="0", SLURM_NTASKS="16", SLURM_JOB_ID="88")
    assert found(proc) == []


def test_the_tasks_of_a_step_are_ranks_unless_it_has_one_alone(proc: Proc) -> None:
    proc.process(10, 1, **TASK).process(20, 1, **{**TASK, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    assert found(proc) == [(10, "slurm", 3, 16)]


@pytest.mark.parametrize(
    "child",
    ["python torchrun train.py", "python -m torch.distributed.run train.py", "python -c from multiprocessing.spawn …"],
)
def test_a_task_that_starts_ranks_is_none(proc: Proc, child: str) -> None:
    proc.process(10, 1, command="bash run.sh", **TASK).process(11, 10, command=child, **TASK)
    assert found(proc) == []
    proc.process(12, 11, **{**TASK, "RANK": "25", **TORCHRUN, "WORLD_SIZE": "32"})
    assert found(proc) == [(12, "torchrun", 25, 32)]


def test_a_probe_that_is_a_task_of_a_step_is_no_rank(proc: Proc) -> None:
    proc.process(10, 1, command="sh -c export TRAINMON_STEP=1; …", **TASK)
    proc.process(11, 10, **TASK, TRAINMON_STEP="1")
    assert found(proc) == []


def test_of_several_launchers_the_last_one_counts(proc: Proc) -> None:
    mpi = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    proc.process(10, 1, **{**TASK, **mpi}).process(20, 1, **{**TASK, **mpi, "RANK": "6", "WORLD_SIZE": "8"})
    proc.process(30, 1, **{**TASK, "PMI_RANK": "7", "PMI_SIZE": "8"})
    assert found(proc) == [(10, "mpi", 5, 8), (20, "environment", 6, 8), (30, "pmi", 7, 8)]


@pytest.mark.parametrize("rank", ["", "-1", "16", "a", "1" * 80, "0x1", "²"])
def test_a_number_that_is_no_rank_is_left_out(proc: Proc, rank: str) -> None:
    proc.process(10, 1, RANK=rank, **TORCHRUN)
    assert found(proc) == []


def test_a_number_that_is_cut_by_the_limit_of_what_is_read_is_no_rank(proc: Proc) -> None:
    proc.process(10, 1, **TORCHRUN, LONG="x" * (MIB - 120), RANK="11")
    proc.process(11, 1, LONG="x" * 200_000, RANK="9", **TORCHRUN)
    whole = proc.root / "proc" / "10" / "environ"
    start = whole.read_text().index("RANK=11") + len("RANK=1")
    proc.process(10, 1, **TORCHRUN, LONG="x" * (MIB - 120 + MIB - start), RANK="11")
    assert proc.ranks.text("10", "environ").endswith("RANK=1")
    assert found(proc) == [(11, "torchrun", 9, 16)]


def test_a_process_is_read_once_and_not_before_it_has_settled(proc: Proc) -> None:
    proc.process(10, 1, at=995.0, RANK="9", **TORCHRUN)
    assert found(proc) == []
    assert ("10", "environ") not in proc.ranks.names
    proc.write("uptime", "1006.00 1\n")
    assert found(proc) == [(10, "torchrun", 9, 16)]
    assert found(proc) == [(10, "torchrun", 9, 16)]
    assert proc.ranks.names.count(("10", "environ")) == 1
    proc.end(10).process(10, 1, at=996.0, **{**TORCHRUN, "RANK": "4"})
    assert found(proc) == [(10, "torchrun", 4, 16)], "the pid is that of another process now"


def test_no_other_variable_is_sent(proc: Proc) -> None:
    secrets = {"WANDB_API_KEY": SECRET, "RANK_TOKEN": SECRET, "MASTER_ADDR": SECRET, "SLURM_JOB_NAME": SECRET}
    proc.process(10, 1, command=f"train.py --key {SECRET}", RANK="9", **TORCHRUN, **secrets)
    (line,) = proc.ranks.read()
    assert line["r"] == [[10, 500.0, [], "torchrun", 9, 16, 1, 88, "llm-7", [], None]]
    assert SECRET not in json.dumps(line)


MOUNTS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 0:40 / /fsx rw - nfs4 server:/fsx rw\n"


def blocked(proc: Proc, pid: int, ran: str, where: str = "rpc_wait_bit_killable", parent: int = 10) -> None:
    """The process is in state D, with files open on /fsx, and on the disk."""
    fields = ["D", str(parent), *["0"] * 17, str(500 * TICKS), "0"]
    proc.write(f"{pid}/stat", f"{pid} (python) {' '.join(fields)}\n")
    for name, text in (("schedstat", ran), ("wchan", where), ("mountinfo", MOUNTS)):
        proc.write(f"{pid}/{name}", text)
    (proc.root / "proc" / str(pid) / "fd").mkdir(exist_ok=True)
    for number, target in enumerate(("/dev/null", "/fsx/data/a.tar", "/var/log/x", "socket:[1]")):
        link = proc.root / "proc" / str(pid) / "fd" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def test_a_worker_that_has_hardly_run_between_two_looks_waits_for_a_mount(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("collectors.probe.gpu.ranks.time.monotonic", clock)
    proc.process(10, 1, RANK="9", **TORCHRUN).process(20, 10, RANK="9", **TORCHRUN)
    blocked(proc, 20, "500 70 12")
    assert [one.waits for one in proc.read()] == [(RankWait(20, 0.0, "rpc_wait_bit_killable"),)], "it may be a moment"
    clock.at += 30.0
    waits = (RankWait(20, 30.0, "rpc_wait_bit_killable", "/fsx", "nfs4"),)
    assert [one.waits for one in proc.read()] == [waits]
    blocked(proc, 20, "2000500 70 42")
    clock.at += 30.0
    assert [one.waits[0].seconds for one in proc.read()] == [60.0], "a client of Lustre wakes up once a second"
    blocked(proc, 20, "900000500 70 43")
    clock.at += 30.0
    assert [one.waits[0].seconds for one in proc.read()] == [0.0], "it has run meanwhile"
    blocked(proc, 20, "")
    proc.read()
    clock.at += 30.0
    assert [one.waits[0].seconds for one in proc.read()] == [0.0], "this kernel does not say whether it has run"
    proc.process(20, 10, RANK="9", **TORCHRUN)
    assert [one.waits for one in proc.read()] == [()]


def test_if_all_processes_wait_each_rank_says_so(proc: Proc) -> None:
    """Sixteen workers of rank 0 have the lowest pids."""
    for rank in range(8):
        proc.process(10 + rank, 1, RANK=str(rank), **TORCHRUN)
        for worker in range(16):
            proc.process(100 * rank + 100 + worker, 10 + rank, RANK=str(rank), **TORCHRUN)
            blocked(proc, 100 * rank + 100 + worker, "500 70 12", parent=10 + rank)
    waits = {one.rank: [wait.pid for wait in one.waits] for one in proc.read()}
    assert waits == {rank: [100 * rank + 100 + worker for worker in range(4)] for rank in range(8)}


def test_whether_the_pids_are_those_of_the_host_is_said(proc: Proc) -> None:
    assert readings_of(proc.ranks, slow=True)[0].host_pids
    proc.namespace("pid:[4026532567]")
    assert not readings_of(proc.ranks, slow=True)[0].host_pids


TRAINER = """
import os
os.write(os.memfd_create("trainmon-steps"), b"%-19d %-19d %-19d %-19d" % (7, 2_000_000, 500_000, 0))
input()
"""


@pytest.mark.parametrize("text", ["", "7 1 2", "7 1 2 nan", "7 1 2 3 4", "7 1 2 " + 30 * "9"])
def test_what_is_not_of_the_hooks_says_nothing_of_steps(proc: Proc, text: str) -> None:
    proc.process(11, 1, RANK="9", **TORCHRUN).write("11/fd/none", "")
    (proc.root / "file").write_text(text)
    (proc.root / "proc/11/fd/3").symlink_to(proc.root / "file")
    assert [one.steps for one in proc.read()] == [None]


def test_every_python_of_a_node_reads_the_ranks_of_a_real_process_and_its_gpu(tmp_path: Path) -> None:
    env = {"RANK": "9", **TORCHRUN, "WANDB_API_KEY": SECRET}
    oldest = min(interpreters.found().items(), key=lambda one: int(one[0][2:]))[1]
    blocks = tmp_path / "blocks"
    code = "int main(void) { if (!vfork()) for (;;) pause(); }"
    subprocess.run(["gcc", "-w", "-xc", "-o", blocks, "-include", "unistd.h", "-"], input=code, text=True, check=True)
    with (
        subprocess.Popen([sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, env=env) as trainer,
        subprocess.Popen([blocks], env={"RANK": "10", **TORCHRUN}, start_new_session=True) as blocked,
    ):
        nvml = Nvml(tmp_path).process(3, trainer.pid, 100)
        time.sleep(10.5)
        for python in {oldest, sys.executable}:
            with RunningProbe(nvml.environment(), python=python, slow=3.0, ranks=True) as probe:
                ranks = probe.wait(
                    RankProcesses,
                    lambda one: any(rank.waits and rank.waits[0].seconds > 0.5 for rank in one.r if rank.rank == 10),
                )
                facts = probe.wait(GpuFactsAll, lambda one: one.g[3].processes)
            own = [one for one in ranks.r if one.pid == trainer.pid]
            assert [one.waits[0].pid for one in ranks.r if one.pid == blocked.pid] == [blocked.pid]
            node = None
            for reading in (msgspec.structs.replace(ranks, r=tuple(own)), facts):
                node = read(node, NodeReading("n1", "prod", reading.t, reading))
            steps = RankSteps(7, 2_000_000, 500_000, 0)
            assert own[0] == RankProcess(
                trainer.pid, own[0].started_s, (), "torchrun", 9, 16, 1, 88, "llm-7", steps=steps
            )
            assert str(place_of(9, rank_map([node], 88, None))) == "rank 9 (n1 GPU 3)"
            assert SECRET.encode() not in b"".join(probe.raw)
        os.killpg(blocked.pid, signal.SIGKILL)
        trainer.communicate(b"\n")
