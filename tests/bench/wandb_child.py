"""The W&B child and wandb-core over many polls: resident memory, which must stay flat, processor time, and requests.

Run: python -m tests.bench.wandb_child [POLLS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from collectors.wandb.wire import HistoryPoints, ListRuns, ReadHistory, RunList
from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.wandb_child import WandbChild, resident_mib, running_child
from tests.lab.wandb_server import WandbServer
from trainmon.model import WandbSpec

KEYS = ("loss", "grad_norm", "lr", "tokens_per_s", "val/loss", "val/accuracy")
RUNS = 6
ROWS = 1_000
SPEC = WandbSpec(project="tester/video", group="final")
A_MINUTE = 10
"""Polls of ten runs a minute."""

GROWTH_MIB, CORE_SHARE = 2.0, 0.01


def fill(server: WandbServer) -> str:
    """Attempts with as many metrics and settings as we show; the path of the newest."""
    for number in range(RUNS):
        settings = {f"setting{index}": {"value": index, "words": "x" * 30} for index in range(150)}
        run = server.add_run(f"run{number}", group="final", config=settings, age=100 - number)
        for step in range(ROWS):
            run.log(dict.fromkeys(KEYS, 2.0 - step / ROWS), step=step)
        run.log({f"m/{index}": float(index) for index in range(290)}, step=ROWS)
    return f"tester/video/run{RUNS - 1}"


def processor_s(pid: int) -> float:
    """The processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(child: WandbChild) -> tuple[float, float]:
    assert child.sidecar is not None
    return resident_mib(child.process.pid), resident_mib(child.sidecar)


def main() -> int:
    polls = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    marks = sorted({10, polls // 4, polls // 2, polls})
    rows, seen = [], []
    with (
        WandbServer.start() as server,
        tempfile.TemporaryDirectory() as home,
        running_child(server, Path(home)) as child,
    ):
        path = fill(server)
        child.expect(RunList, ListRuns(id=1, spec=SPEC))
        assert child.sidecar is not None
        pids = (child.process.pid, child.sidecar)
        began, requests = sum(map(processor_s, pids)), 0
        for poll in range(1, polls + 1):
            server.requests.clear()
            child.expect(RunList, ListRuns(id=1, spec=SPEC))
            child.expect(HistoryPoints, ReadHistory(id=2, path=path, keys=KEYS, since=dict.fromkeys(KEYS, ROWS - 10.0)))
            requests = max(requests, len(server.requests))
            if poll in marks:
                seen.append(memory(child))
                took = (sum(map(processor_s, pids)) - began) / poll
                rows.append([f"{poll:,}", *(f"{size:.1f}" for size in seen[-1]), f"{1000 * took:.0f}"])
        begin = time.monotonic()
        child.expect(HistoryPoints, ReadHistory(id=3, path=path, keys=KEYS))
        whole = time.monotonic() - begin
    title = f"{RUNS} attempts of 300 metrics and settings, {len(KEYS)} curves: after so many polls"
    show(title, ("polls", "child, MiB", "wandb-core, MiB", "processor, ms a poll"), rows)
    share = took * A_MINUTE / 60
    grown = sum(seen[-1]) - sum(seen[1])  # Go's own heap is warm by then
    print(f"\n  requests a poll: {requests}; ten runs a minute: {100 * share:.2f}% of a core (goal: 1%)")
    print(f"  grown since poll {marks[1]:,}: {grown:+.1f} MiB; {len(KEYS)} x {ROWS:,} points: {1000 * whole:.0f} ms")
    return int(grown > GROWTH_MIB or share > CORE_SHARE or requests > 2)


if __name__ == "__main__":
    run_program(main)
