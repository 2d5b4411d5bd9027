"""A training of several ranks over gloo, under torchrun, in which one rank can be held up and let go again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.torchrun import torch_python
from trainmon.job import hooks_module
from trainmon.model import Attempt, Node, RankMap, RankProcess, RankProcesses, Run, RunSpec, State

TRAINER = '''\
"""Steps of some work and an all_reduce. What a rank does beside that is a word in the file `hold`."""
import hashlib, os, sys, time
from datetime import timedelta

import torch
import torch.distributed as dist

folder, work_s = sys.argv[1], float(sys.argv[2])
if "RANK" not in os.environ:
    os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method="file://%s/meet" % folder, rank=rank, world_size=ranks)
else:
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
rank, torch_threads = dist.get_rank(), torch.set_num_threads(1)
HOOKS, hooks = os.path.join(folder, "trainmon_hooks.py"), None
late = os.environ.get("LATE", "").replace("%d." % rank, "")
if os.path.exists(HOOKS):
    sys.path.insert(0, folder)
    from trainmon_hooks import Hooks
    hooks = Hooks(status=os.path.join(folder, "status"))


HOLD_S = float(os.environ.get("HOLD_S", "30"))


def sleeps():
    time.sleep(HOLD_S)


def loops():
    end = time.monotonic() + HOLD_S
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20_000_000)


def asks():
    with open(os.path.join(folder, "answers")) as answers:
        answers.readline()


def saves():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with open(os.path.join(folder, "checkpoint"), "wb") as file:
            file.write(bytes(50_000_000))
            os.fsync(file.fileno())


HOLDS = {"sleep": sleeps, "loop": loops, "input": asks, "save": saves}
def batches():
    for batch in torch.utils.data.DataLoader(range(10**9), num_workers=int(os.environ.get("WORKERS", "0"))):
        if late == "data":
            time.sleep(0.05)
        yield batch


loader = batches() if hooks is None else hooks.batches(batches())
done, stage = set(), torch.zeros(1)
half = dist.get_world_size() // 2 if os.environ.get("PIPELINE") else 0
for step in range(1, 10**9):
    next(loader)
    began = time.monotonic()
    if half and rank >= half:
        dist.recv(stage, rank - half)
    work_until = time.monotonic() + work_s
    while time.monotonic() < work_until:
        torch.ones(200, 200) @ torch.ones(200, 200)
    for hold in {name for name in os.listdir(folder) if name.startswith("hold.%d." % rank)} - done:
        done.add(hold)
        HOLDS[hold.split(".")[2]]()
    if half and rank < half:
        dist.send(stage, rank + half)
    dist.all_reduce(torch.ones(1))
    if late == "own":
        time.sleep(0.3)
    if hooks is not None:
        hooks.step(step)
    if rank == 0:
        print(" iteration %8d/ 1000000000 | elapsed time per iteration (ms): %.1f | lm loss: 2.5E+00 |"
              % (step, 1e3 * (time.monotonic() - began)), flush=True)
'''


STANDS = 1.0
"""Seconds without a step, of which one takes some hundredths: all ranks wait."""


class Training:
    """A running training. `environ`: WORKERS of each rank's DataLoader; PIPELINE: the second half of the ranks waits
    for the first one in each step; HOLD_S: for how long a rank sleeps or loops that is held up; LATE: `3.data`, a rank
    that loads slowly, or `3.own`, that works on alone."""

    def __init__(
        self,
        folder: Path,
        ranks: int = 8,
        *,
        work_s: float = 0.02,
        hooks: bool = False,
        **environ: str,
    ) -> None:
        self.folder, self.log = folder, folder / "training.log"
        self.script = folder / "train.py"
        self.script.write_text(TRAINER)
        os.mkfifo(folder / "answers")
        if hooks:
            (folder / "trainmon_hooks.py").write_text(hooks_module())
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(torch_python()), *launch, str(self.script), str(folder), str(work_s)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"} | environ,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self.pids().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def pids(self) -> dict[int, int]:
        """The pid of each rank."""
        found: dict[int, int] = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (place / "cmdline").read_bytes().split(b"\0")
                if str(self.script).encode() in words and b"torch.distributed.run" not in words:
                    environ = dict(pair.partition(b"=")[::2] for pair in (place / "environ").read_bytes().split(b"\0"))
                    parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
                    if int(parent) == self.process.pid:
                        found[int(environ[b"RANK"])] = int(place.name)
        return found

    def steps(self) -> int:
        return len(self.step_times())

    def step_times(self) -> list[float]:
        """The milliseconds of each step so far."""
        return [
            float(found) for found in re.findall(r"iteration \(ms\): ([\d.]+)", self.log.read_text(errors="replace"))
        ]

    def states(self) -> str:
        """The state of each of its processes, as ps(1) shows it."""
        return "".join(_fields(pid)[0] for pid in self.pids().values())

    def wait_for_steps(self, more: int, patience: float = 300.0) -> None:
        """Wait until it has made so many more steps."""
        goal, end = self.steps() + more, time.monotonic() + patience
        while self.steps() < goal:
            is_patient = self.process.poll() is None and time.monotonic() < end
            assert is_patient, self.log.read_text()[-3000:]
            time.sleep(0.1)

    def hold(self, rank: int, how: str, count: int = 0) -> None:
        """Hold a rank up until all wait for it: sleep, loop or save for 30 s; wait for input; stop."""
        if how == "stop":
            os.kill(self.pids()[rank], signal.SIGSTOP)
        else:
            (self.folder / f"hold.{rank}.{how}.{count}").touch()
        steps, since = self.steps(), time.monotonic()
        while time.monotonic() - since < STANDS:
            if steps != (steps := self.steps()):
                since = time.monotonic()
            time.sleep(0.1)

    def let_go(self, rank: int, how: str) -> None:
        """Let it go on, if it does not do that by itself."""
        if how == "stop":
            os.kill(self.pids()[rank], signal.SIGCONT)
        elif how == "input":
            (self.folder / "answers").write_text("go on\n")

    def state(self, seen_at: float = 0.0) -> State:
        """What the monitor knows of it, as the run `gloo` on this machine, `n1`. It takes it for one that hangs, and so
        might name somebody."""
        started = {rank: (pid, int(_fields(pid)[19]) / TICKS) for rank, pid in self.pids().items()}
        rows = tuple(
            RankProcess(pid, began, self.workers(pid), "torchrun", rank, len(started))
            for rank, (pid, began) in sorted(started.items())
        )
        known = RankMap(launcher="torchrun", ranks=len(rows), nodes={"n1": {one.rank: (one.rank,) for one in rows}})
        attempt = Attempt(attempt_id="gloo/1", run_id="gloo", cluster="here", ranks=known)
        node = Node(name="n1", cluster="here", ranks=RankProcesses(1, seen_at, rows, user="me", host_pids=True))
        run = Run(spec=RunSpec(name="gloo", cluster="here"), verdict="hung")
        return State(runs={"gloo": run}, nodes={"n1": node}, attempts={"gloo/1": attempt})

    def workers(self, rank: int) -> tuple[int, ...]:
        """The pids below one of its processes."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                found += [int(place.name)] * (int(_fields(int(place.name))[1]) == rank)
        return tuple(found)


TICKS = os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
