"""A stand-in for the RAS service of a job of NCCL: a simulated training, its counts, and its answers as JSON.

Each rank launches the operations of one program in its communicators: it runs ahead of its GPU, and waits when too much
is not finished. So one rank that stops holds up others in an order that nobody has written down. As a program it is one
process of such a job: `python -m tests.lab.nccl_ras '{"port": 28028, "seed": 3, …}'`. Its library is a file that it
maps, of which only the name counts.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
GONE = ("missing", "dead")
ERRORS = {"remote error": 6, "cuda error": 1}
"""What the last rank reports; nothing moves."""
HEALTHY = ("ok", "skew", "slow", "ahead", "starting", "ending")
"""Nobody is to blame: the counts of `skew` differ ever more, `slow` launches little, one of `ahead` is far ahead."""
STUCK = ("stuck", "first", "ahead minority", *GONE)
"""Someone is: of `ahead minority` most are late; those of `first` never launch anything."""


class Group(NamedTuple):
    """A communicator: the ranks of the training in it."""

    name: str
    ranks: tuple[int, ...]


class Job:
    """A training with a fault. `victims` are the ranks that hold it up. Times are seconds since its begin."""

    def __init__(
        self, scenario: str, seed: int, *, ranks: int | None = None, per_node: int = 8, tensor: int = 0
    ) -> None:
        self.random = random.Random(f"{scenario} {seed}")
        self.scenario, self.seed, self.per_node = scenario, seed, per_node
        self.ranks = ranks or self.random.choice((2, 8, 16, 32, 64))
        self.tensor = tensor or self.random.choice([one for one in (1, 1, 2, 4, 8) if self.ranks % one == 0])
        self.begin = self.random.randrange(50, 9_000) * (scenario != "first")
        count = 1 if scenario in GONE else self.random.choice((1, 1, 1, 2, 3))
        if scenario == "ahead minority":
            count = self.ranks - max(1, self.ranks // 10)
        is_faulty = scenario in STUCK
        self.victims = tuple(sorted(self.random.sample(range(self.ranks), min(count, self.ranks - 1)))) * is_faulty
        self.budgets = [self.random.randrange(1, 12) for _ in range(self.ranks)]
        self.hosts = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(-(-self.ranks // per_node))]
        self.pids = [self.random.randrange(2_000, 400_000) for _ in range(self.ranks)]
        self.pids[:] = [pid + rank for rank, pid in enumerate(self.pids)]

    @cached_property
    def groups(self) -> list[Group]:
        """All ranks, those of each tensor-parallel group, and those with the same place in these."""
        size, world = self.tensor, tuple(range(self.ranks))
        groups = [Group("world", world)]
        if size > 1:
            groups += [Group("tensor", world[at : at + size]) for at in range(0, self.ranks, size)]
            groups += [Group("data", world[at::size]) for at in range(size) if self.ranks > size]
        return groups

    @cached_property
    def program(self) -> list[tuple[str, str]]:
        """What each rank launches in each step: the kind of communicator and the operation."""
        kinds = list(dict.fromkeys(group.name for group in self.groups))
        length = self.random.randrange(3, 9)
        return [(self.random.choice(kinds), self.random.choice(OPERATIONS[2:])) for _ in range(length)] + [
            ("world", "AllReduce")
        ]

    def position(self, at: float) -> list[int]:
        """How many operations each rank has launched."""
        length = len(self.program)
        if self.scenario in HEALTHY:
            rate = 0.4 if self.scenario == "slow" else 7.0
            done = self.begin * length + int(rate * at)
            noise = random.Random(f"{self.seed} {int(at)}")
            spread = int(at / 2) if self.scenario == "skew" else 3
            far = 200 * (self.scenario == "ahead")
            return [done + noise.randrange(spread + 1) + far * (rank == self.ranks - 1) for rank in range(self.ranks)]
        if not self.victims:
            return [self.begin * length + 3] * self.ranks
        return self.stopped

    @cached_property
    def stopped(self) -> list[int]:
        """The positions when nothing moves any more."""
        base = self.begin * len(self.program)
        last = base + (0 if self.scenario == "first" else self.random.randrange(len(self.program)))
        at = [last if rank in self.victims else base for rank in range(self.ranks)]
        members = {(group.name, rank): group.ranks for group in self.groups for rank in group.ranks}
        is_moving = True
        while is_moving:
            is_moving = False
            for rank in range(self.ranks):
                while rank not in self.victims:
                    kinds = [self.program[index % len(self.program)][0] for index in range(base, at[rank])]
                    slowest = {kind: min(at[one] for one in members[kind, rank]) for kind in {*kinds}}
                    if sum(slowest[kind] <= base + done for done, kind in enumerate(kinds)) >= self.budgets[rank]:
                        break
                    at[rank] += 1
                    is_moving = True
        return at

    def counts(self, at: float, group: Group) -> dict[int, dict[str, int]]:
        """By rank: how many of each operation it has launched in a communicator."""
        position, length = self.position(at), len(self.program)
        each = Counter(operation for kind, operation in self.program if kind == group.name)
        found = {}
        for rank in group.ranks:
            steps, rest = divmod(position[rank], length)
            more = Counter(operation for kind, operation in self.program[:rest] if kind == group.name)
            found[rank] = {name: steps * each[name] + more[name] for name in OPERATIONS}
        return found

    def place(self, rank: int, index: int) -> dict[str, Any]:
        """As JSON has a rank; `index` is that in the communicator."""
        gpu = rank % self.per_node
        return {"rank": index, "host": self.hosts[rank // self.per_node], "pid": self.pids[rank],
                "cuda_dev": gpu, "nvml_dev": gpu}  # fmt: skip

    def communicator(self, number: int, at: float) -> dict[str, Any]:
        """As JSON has it."""
        group = self.groups[number]
        silent, counts = self.victims if self.scenario in GONE else (), self.counts(at, group)
        there, missing = [], []
        for index, rank in enumerate(group.ranks):
            if rank in silent:
                status = {"unresponsive": True, "considered_dead": self.scenario == "dead"}
                missing.append({**self.place(rank, index), "status": status})
                continue
            is_odd = rank == self.ranks - 1
            there.append({**self.place(rank, index), "status": {
                "init_state": 7 * (self.scenario == "starting" and is_odd),
                "async_error": ERRORS.get(self.scenario, 0) * is_odd,
                "finalize_called": self.scenario == "ending" and not is_odd, "destroy_flag": False, "abort_flag": False,
            }, "collective_counts": counts[rank]})  # fmt: skip
        hash_ = random.Random(f"{self.seed} {group}").randrange(1 << 63)
        return {"hash": hex(hash_), "secondary_hash": f"{hex(hash_ // 3)}:{hex(hash_ // 7)}", "size": len(group.ranks),
                "absentcount": len(there), "missing_absentcount": len(missing), "ranks": there,
                **({"missing_ranks": missing} if missing else {})}  # fmt: skip

    def answer(self, version: str, at: float) -> str:
        """The report, as this version writes it."""
        return to_json([self.communicator(number, at) for number in range(len(self.groups))], version)


def to_json(communicators: Sequence[Mapping[str, Any]], version: str) -> str:
    """Until 2.29.2, a comma is missing."""
    text = json.dumps({
        "nccl_version": version, "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2026-11-29 12:00:00", "communicators_count": len(communicators), "communicators": communicators,
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }, indent=2) + "\n"  # fmt: skip
    if numbers(version) >= (2, 29, 2):
        return text
    lines, is_missing = [], False
    for line in text.split("\n"):
        is_missing = '"missing_ranks":' in line or (is_missing and not line.startswith("      ]"))
        lines.append(line[:-1] if is_missing and '"nvml_dev"' in line else line)
    return "\n".join(lines)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


# ---- a process of such a job -----------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What the program is started with. `pids`: a file with those of the job's processes on this node, in the order of
    their ranks; without one, it is the process of rank 0."""

    port: int
    scenario: str
    seed: int
    version: str
    library: str
    ranks: int = 16
    host: str = "127.0.0.1"
    pids: str = ""
    how: str = ""
    """silent: accepts and never answers. torn: half of the answer. slow: never ends it. huge: more than 16 MB.
    off: does not listen."""


def serve(settings: Settings, ready: Callable[[], None]) -> None:
    """Answer on the port, which all processes of a user share."""
    job = Job(settings.scenario, settings.seed, ranks=settings.ranks)
    job.hosts[0] = "127.0.0.1"
    began = time.monotonic()
    with Path(settings.library).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    if settings.how == "off":
        ready()
        threading.Event().wait()
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
    listening.bind((settings.host, settings.port))
    listening.listen(64)
    ready()
    while len(mapped):
        threading.Thread(target=talk, args=(listening.accept()[0], job, settings, began), daemon=True).start()


def talk(client: socket.socket, job: Job, settings: Settings, began: float) -> None:
    """One connection: commands, then one report."""
    with client, client.makefile("rb") as lines:
        for line in lines:
            command = line.decode().strip().lower()
            if settings.how == "silent":
                continue
            if command.endswith("status"):
                own = json.loads(Path(settings.pids).read_text()) if settings.pids else [os.getpid()]
                job.pids[: len(own)] = own
                text = job.answer(settings.version, time.monotonic() - began).encode()
                client.sendall(text[: len(text) // 2] if settings.how in ("torn", "slow") else text)
                if settings.how == "slow":
                    threading.Event().wait()
                for _ in range(17 if settings.how == "huge" else 0):
                    client.sendall(b" " * (1 << 20))
                return
            if command != "set format json" and not command.startswith("timeout "):
                client.sendall(f"ERROR: Unknown command {command}\n".encode())
                continue
            client.sendall(b"OK\n")


if __name__ == "__main__":
    serve(Settings(**json.loads(sys.argv[1])), lambda: print(os.getpid(), flush=True))
