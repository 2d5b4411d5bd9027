"""The ranks of distributed trainings among our own processes, by what their launchers set in the environment.

Of an environment, only the variables in LAUNCHERS and the number of the job are used. It is read once for each process,
after SETTLED seconds: before that, a launcher or a shell may still be about to become the trainer.
Of a process in state D, nothing is read that could wait with it: no file that it has open, and not its memory.
"""

import os
import time

from collectors.probe.files.disks import Mount
from collectors.probe.gpu.card import LONGEST_VALUE, MIB, linked
from collectors.probe.host import STEP, number, user_name
from collectors.probe.paths import listed, read, shown
from collectors.probe.stdlib import Any, Line, Mapping, Operation

LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
    ("environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"),
    ("pmi", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_RANK"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID"),
)
"""Name, and the variables of the rank, the number of ranks, the local rank, and one without which the others count
nothing: the batch shell, which is no task of a step, has SLURM_PROCID=0, too. The first launcher that was here counts.
Of torchrun's own variables, the values are those of torch 2.13; Slurm's those of 22.05."""

STARTERS = (
    "multiprocessing.spawn", "torchrun", "torch.distributed.run", "torch.distributed.launch", "bin/accelerate",
    "bin/deepspeed", "deepspeed.launcher", STEP,
)  # fmt: skip
"""In commands of processes that start ranks or probes, or that Python has started and that may be a rank of their own.
A number that others than torchrun have given them, or what is above them, is not the rank of a trainer."""

HOST = "pid:[4026531836]"
"""The PID namespace of the host (PROC_PID_INIT_INO of Linux). In another one, the driver has other pids than /proc."""

SETTLED = 10.0
"""Seconds."""
TICKS = os.sysconf("SC_CLK_TCK")
MOST = 256
HARDLY = 1e6
"""ns per second: a client of Lustre wakes up once a second while it waits."""
MOST_WAITS = 4
"""Of the processes of each rank: if a file server hangs, all ranks wait, each with several."""
MOST_FILES = 256

STEPS = "/memfd:trainmon-steps"
"""The file that trainmon_hooks has in memory."""

NETWORK = ("nfs", "lustre", "ceph", "beegfs", "gpfs", "cifs", "smb3", "wekafs", "fuse.", "9p")
"""How the types of filesystems begin that a server may keep waiting."""


class Ranks:
    """All ranks of this user on this node; of root, all ranks."""

    def __init__(self, spec: "Mapping[str, Any]", root: str = "/") -> None:
        self.folder = os.path.join(root, "proc")
        self.known = {}  # type: dict[tuple[int, str], tuple[Any, ...]]
        """By pid and start time: launcher, rank, number of ranks, local rank, job, torchrun's id, and whether it may be
        no rank of a trainer. Empty: it has none."""
        self.workers = set()  # type: set[tuple[int, str]]
        """Processes below a rank that have inherited its variables. They are no ranks when that has ended, either."""
        self.blocked = set()  # type: set[int]
        """The pids in state D."""
        self.waits = {}  # type: dict[tuple[int, str], tuple[int | None, float]]
        """Those of ranks: since when they have hardly run, by our clock, and how much they had run then."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        """Nothing here depends on the spec."""

    def operations(self, slow: bool) -> "list[Operation]":
        return [("ranks", self.read)] if slow else []

    def text(self, *names: str) -> str:
        return read(os.path.join(self.folder, *names), MIB)

    def read(self) -> "list[Line]":
        """The ranks now."""
        started, parents = self.processes()
        self.known = {key: self.known[key] if key in self.known else self.identity(key[0]) for key in started.values()}
        ranks = {pid: self.known[key][:-1] for pid, key in started.items() if self.known[key]}
        self.workers &= set(self.known)
        self.workers.update(started[pid] for pid in ranks if ranks.get(parents[pid]) == ranks[pid])
        members = {pid: [] for pid in sorted(ranks) if started[pid] not in self.workers}  # type: dict[int, list[int]]
        for pid in ranks:
            top = pid
            while started.get(top) in self.workers:
                top = parents[top]
            if ranks.get(top) == ranks[pid]:
                members[top].append(pid)
        waits = {top: sorted(self.blocked.intersection(pids))[:MOST_WAITS] for top, pids in members.items()}
        self.waits = {started[pid]: self.waiting(pid, started[pid]) for pids in waits.values() for pid in pids}
        rows = [
            [
                top,
                int(started[top][1]) / TICKS,
                sorted(set(pids) - {top})[:MOST],
                *ranks[top],
                [self.wait(pid, started[pid]) for pid in waits[top]],
                self.steps(top),
            ]
            for top, pids in members.items()
            if not any(self.known[started[pid]][-1] for pid in pids)
        ]
        is_host = os.path.realpath(os.path.join(self.folder, "self/ns/pid")).endswith(HOST)
        return [{"k": "ranks", "r": rows[:MOST], "user": user_name(os.getuid()), "host_pids": is_host}]

    def processes(self) -> "tuple[dict[int, tuple[int, str]], dict[int, int]]":
        """Our processes that have settled: pid and start time, in ticks after the boot; and their parents."""
        started, parents = {}, {}
        self.blocked = set()
        latest = (float((self.text("uptime") or "0").split()[0]) - SETTLED) * TICKS
        for name in listed(self.folder):
            if name.isdigit() and os.access(os.path.join(self.folder, name, "environ"), os.R_OK):
                fields = self.text(name, "stat").rpartition(")")[2].split()
                if fields and int(fields[19]) <= latest:
                    started[int(name)], parents[int(name)] = (int(name), fields[19]), int(fields[1])
                    self.blocked.update([int(name)] if fields[0] == "D" else ())
        return started, parents

    def waiting(self, pid: int, key: "tuple[int, str]") -> "tuple[int | None, float]":
        """Since when a process in state D has hardly run, and how many ns it had run then. One that reads much is often
        in this state, too, but it runs in between."""
        ran, now = number((self.text(str(pid), "schedstat").split() or [""])[0]), time.monotonic()
        before, since = self.waits.get(key, (None, now))
        is_same = ran is not None and before is not None and ran - before <= HARDLY * (now - since)
        return (before, since) if is_same else (ran, now)

    def wait(self, pid: int, key: "tuple[int, str]") -> "list[Any]":
        """The row of such a process on the wire (model.RankWait)."""
        seconds, where = time.monotonic() - self.waits[key][1], self.text(str(pid), "wchan").strip()[:64]
        mounts = self.mounts(str(pid)) if seconds > 1.0 else set()
        return [pid, round(seconds, 1), "" if where == "0" else where, *(mounts.pop() if len(mounts) == 1 else ())]

    def steps(self, pid: int) -> "list[int | None] | None":
        """What trainmon_hooks writes into memory of the steps of a rank (model.RankSteps)."""
        folder = os.path.join(self.folder, str(pid), "fd")
        for name in listed(folder, MOST_FILES):
            try:
                if os.readlink(os.path.join(folder, name)).startswith(STEPS):
                    numbers = [number(one) for one in self.text(str(pid), "fd", name).split()]
                    return numbers if len(numbers) == 4 and None not in numbers else None
            except OSError:
                pass
        return None

    def mounts(self, pid: str) -> "set[tuple[str, str]]":
        """The mounts of network filesystems of which a process has files open, each with its type."""
        every = [Mount(line) for line in self.text(pid, "mountinfo").encode().splitlines()]
        folder = os.path.join(self.folder, pid, "fd")
        files = {linked(os.path.join(folder, name)) for name in listed(folder, MOST_FILES)}
        each = ([one for one in every if one.holds(path.encode())] for path in files if path)
        found = [max(above, key=lambda one: len(one.point)) for above in each if above]
        return {(shown(one.point), one.filesystem) for one in found if one.filesystem.startswith(NETWORK)}

    def identity(self, pid: int) -> "tuple[Any, ...]":
        """What the environment of a process says of its rank. A probe, which may be a task of a step, has none."""
        values = dict(pair.partition("=")[::2] for pair in self.text(str(pid), "environ").split("\0")[:-1])
        for name, *variables, condition in LAUNCHERS if STEP not in values else ():
            rank, ranks, local = (number(values.get(variable, "")[:9]) for variable in variables)
            if values.get(condition) and rank is not None and ranks is not None and rank < ranks:
                command, job = self.text(str(pid), "cmdline"), number(values.get("SLURM_JOB_ID", "")[:12])
                if name == "torchrun":
                    return name, rank, ranks, local, job, values[condition][:LONGEST_VALUE], False
                is_other = (name, ranks) == ("slurm", 1) or any(one in command for one in STARTERS)
                return name, rank, ranks, local, job, None, is_other
        return ()
