"""What watching W&B costs: `python -m tests.bench.wandb [MINUTES] [POLLS]`, ten runs with six charted metrics each.

The real child and the real SDK ask a stand-in of the server on loopback: first in real time, every 60 s, and then as
fast as they can, to see whether their memory grows. A poll is a round: one look at all ten runs.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collectors.wandb.child_process import ChildClient
from collectors.wandb.collector import WandbCollector
from collectors.wandb.login import find_credentials
from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.processes import proc_files
from tests.lab.wandb_server import WandbServer
from tests.wandb.parts import ShiftedClock
from trainmon.lib import Seconds
from trainmon.model import RunSpec, WandbSpec

RUNS = 10
KEYS = ("train/loss", "grad_norm", "lr", "tokens_per_s", "val/loss", "val/accuracy")
EVERY: Seconds = 60.0
HISTORY = 2_000
"""Rows of each run at the start."""
ROWS = 15
"""Rows that each logs in a period: a step in four seconds."""
REQUESTS, CPU, GROWTH = 23.0, 1.0, 1.10
"""The goal: a minute, % of a core, and the memory of the last poll beside that of the tenth part."""
MARKS = (0.01, 0.1, 0.25, 0.5, 0.75, 1.0)

TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One of those that we started."""

    pid: int
    name: str

    @property
    def cpu_s(self) -> Seconds:
        return spent(Path(f"/proc/{self.pid}/stat"))

    def mib(self, kind: str) -> float:
        """Its memory: Rss, or Pss, which counts shared pages once."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{kind}:"))) / 1024


def spent(stat: Path) -> Seconds:
    """Processor time of a process or of one thread."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def started_by(parent: int) -> Iterator[Process]:
    """Its children and theirs."""
    for stat in proc_files("stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        if int(rest.split()[1]) == parent:
            name = head.partition("(")[2]
            yield Process(int(stat.parent.name), "wandb-core" if "wandb-core" in name else "the child")
            yield from started_by(int(stat.parent.name))


class Bench:
    """A watcher that is stepped by hand, and ten runs that train."""

    def __init__(self, server: WandbServer, clock: ShiftedClock, home: Path) -> None:
        env = {"HOME": str(home), "PATH": os.environ["PATH"], **server.environ}
        specs = [WandbSpec(project="tester/video", group=f"g{number}") for number in range(RUNS)]
        runs = tuple(RunSpec(name=spec.group or "", cluster="bench", wandb=spec) for spec in specs)
        self.server, self.clock = server, clock
        self.watcher = WandbCollector(
            runs,
            EVERY,
            lambda event: None,
            clock,
            client=lambda: ChildClient(env),
            login=lambda: find_credentials(env, home),
        )
        self.trained = [server.add_run(f"r{number}", group=f"g{number}") for number in range(RUNS)]

    def train(self, rows: int) -> None:
        """Each run logs so many rows."""
        for run in self.trained:
            for _ in range(rows):
                step = len(run.history)
                values = {key: 2.0 + random.random() / (1 + step) for key in KEYS}
                self.server.log(run, {"trainer/global_step": step, **values}, step=step)

    def skip(self, seconds: Seconds) -> None:
        """Let time pass that nobody waits for."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            wait = self.watcher.step() or EVERY
            self.clock.skipped += max(0.0, min(wait, end - self.clock.now()))

    def live(self, seconds: Seconds) -> None:
        """Let time pass as it does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            wait = self.watcher.step() or EVERY
            time.sleep(max(0.0, min(wait, end - time.monotonic())))

    def ours(self) -> Seconds:
        """Processor time of the thread that watches, this one, and of the one that reads what the child says."""
        readers = [thread for thread in threading.enumerate() if thread.name == "event loop"]
        tasks = (Path(f"/proc/self/task/{thread.native_id}/stat") for thread in readers)
        return time.thread_time() + sum(spent(task) for task in tasks)


def steady(bench: Bench, minutes: float) -> bool:
    """Print what it costs at its usual pace."""
    processes = list(started_by(os.getpid()))
    requests, ours, theirs = 0, 0.0, [process.cpu_s for process in processes]
    took = 0.0
    for _ in range(round(minutes)):
        bench.train(ROWS)
        before, begun, since = bench.ours(), time.monotonic(), len(bench.server.reader_requests())
        bench.live(EVERY)
        ours += bench.ours() - before
        took += time.monotonic() - begun
        requests += len(bench.server.reader_requests()) - since
    used = [process.cpu_s - before for process, before in zip(processes, theirs, strict=True)]
    a_minute, cpu = 60 * requests / took, 100 * (sum(used) + ours) / took
    rows = [
        ["requests a minute", f"{a_minute:.1f}", f"≤ {REQUESTS:g}"],
        ["% of a core, all together", f"{cpu:.2f}", f"≤ {CPU:g}"],
        *(
            [f"  {process.name}", f"{100 * seconds / took:.2f}", ""]
            for process, seconds in zip(processes, used, strict=True)
        ),
        ["  our threads", f"{100 * ours / took:.2f}", ""],
    ]
    show(
        f"{RUNS} runs, {len(KEYS)} metrics each, every {EVERY:.0f} s, {took:.0f} s",
        ["what", "measured", "goal"],
        rows,
    )
    return a_minute <= REQUESTS and cpu <= CPU


def lasting(bench: Bench, polls: int) -> bool:
    """Print the memory over many polls."""
    marks = {max(1, round(polls * mark)) for mark in MARKS}
    processes = list(started_by(os.getpid()))
    seen: list[tuple[int, list[float]]] = []
    begun, since = time.monotonic(), len(bench.server.reader_requests())
    for poll in range(1, polls + 1):
        bench.train(1)
        bench.skip(EVERY)
        if poll in marks:
            seen.append((poll, [process.mib("Rss") for process in processes]))
    took, sent = time.monotonic() - begun, len(bench.server.reader_requests()) - since
    head = ["polls", *(f"{process.name}, RSS MiB" for process in processes), "together"]
    rows = [[f"{poll:,}", *(f"{one:.1f}" for one in mib), f"{sum(mib):.1f}"] for poll, mib in seen]
    show(f"{polls:,} polls, {sent:,} requests in {took:.0f} s", head, rows)
    is_same = list(started_by(os.getpid())) == processes
    grown = sum(seen[-1][1]) / sum(seen[min(1, len(seen) - 1)][1])
    print(f"  grown since a tenth of them: {grown:.3f}x (≤ {GROWTH:g}); the same processes: {is_same}")
    return is_same and grown <= GROWTH


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    polls = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    clock = ShiftedClock()
    with tempfile.TemporaryDirectory() as home, WandbServer.start(clock) as server:
        bench = Bench(server, clock, Path(home))
        try:
            bench.train(HISTORY)
            bench.skip(4 * EVERY)  # the first look, and what is asked once of each
            is_well = steady(bench, minutes)
            return int(not (lasting(bench, polls) and is_well))
        finally:
            bench.watcher.stop()


if __name__ == "__main__":
    run_program(main)
