"""What the probe costs a node: `python -m tests.bench.probe [--seconds 60] [--python python3.11]`.

8 GPUs of the NVML stand-in, every 2 s. Beside it, at the same time on the same stand-in, the agent of nvidb 1.9.2
(PyPI, fetched into a temporary folder), started and asked as nvidb does it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click

from collectors.probe import bundle
from tests.bench.program import run_program
from tests.bench.table import status
from tests.lab.nvml import Nvml
from tests.lab.pip import pip
from trainmon.model import LogSpec, Spec

PERCENT, MIB = 0.1, 20.0
"""The goals of the first row: % of a core, and resident memory."""
PEER = "nvidb==1.9.2"
WARM = 6.0
PERIOD = 2.0


class Cost:
    """CPU seconds and memory of a process and its descendants, as the kernel counts them."""

    def __init__(self, pid: int) -> None:
        self.pids = [pid]
        for parent in self.pids:
            for task in Path(f"/proc/{parent}/task").iterdir():
                self.pids += [int(child) for child in (task / "children").read_text().split()]

    def cpu(self) -> float:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pids) / 1e9

    def mib(self, which: str) -> float:
        lines = "".join(Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.pids).splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(f"{which}:")) / 1024


class Agent:
    """A running agent whose output is counted."""

    def __init__(
        self, name: str, argv: list[str], environment: dict[str, str], spec: Spec | None, ask: bytes, every: float
    ) -> None:
        self.name, self.ask, self.every, self.bytes = name, ask, every, 0
        self.next_ask = time.monotonic()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0, cwd="/"
        )
        if spec is not None:
            assert self.process.stdout is not None
            self.write(bundle.payload(self.process.stdout.readline()) + bundle.spec_line(spec))
        threading.Thread(target=self._count, daemon=True).start()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def keep_asking(self, now: float) -> None:
        """What its client writes from time to time: our lease, or the peer's request."""
        if now >= self.next_ask:
            self.next_ask += self.every
            self.write(self.ask)

    def _count(self) -> None:
        assert self.process.stdout is not None
        while data := self.process.stdout.read(65536):
            self.bytes += len(data)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def peer_command(folder: Path, python: str) -> str:
    """nvidb's own shell line for its agent; only its nvml.py is loaded, for that line."""
    pip("install", "--no-deps", "--target", folder, PEER)
    spec = importlib.util.spec_from_file_location("nvidb_nvml", folder / "nvidb" / "nvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.make_nvml_agent_command(python_exe=python))


def measure(agents: list[Agent], seconds: float) -> list[tuple[str, float, float, float, int, float]]:
    """Name, % of one core, RSS, PSS, processes, bytes a second, over the same seconds for all."""

    def go_on(until: float) -> None:
        while (now := time.monotonic()) < until:
            for agent in agents:
                agent.keep_asking(now)
            time.sleep(0.5)

    go_on(time.monotonic() + WARM)
    costs = [Cost(agent.process.pid) for agent in agents]
    cpu, sent, begun = [cost.cpu() for cost in costs], [agent.bytes for agent in agents], time.monotonic()
    go_on(begun + seconds)
    took = time.monotonic() - begun
    return [
        (
            agent.name,
            100 * (cost.cpu() - before) / took,
            cost.mib("Rss"),
            cost.mib("Pss"),
            len(cost.pids),
            (agent.bytes - bytes_before) / took,
        )
        for agent, cost, before, bytes_before in zip(agents, costs, cpu, sent, strict=True)
    ]


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--python", default=sys.executable, show_default=True)
@click.option("--peer/--no-peer", default=True)
def main(seconds: float, python: str, peer: bool) -> None:
    """Print the table."""
    python = os.path.realpath(python)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "train.log"
        log.write_text("iteration 1/ 10 | loss: 1.0\n")
        environment = Nvml(folder).environment()
        plain, full = (
            Spec(period=PERIOD),
            Spec(
                period=PERIOD,
                disks=("/tmp", "/dev/shm"),
                logs=(LogSpec("a", str(log)),),
                switches=(f"{name}/kill",),
            ),
        )
        agents = [
            Agent(
                label,
                bundle.command(python),
                environment,
                spec,
                bundle.LEASE,
                20.0,
            )
            for label, spec in (("probe", plain), ("probe, 2 disks, a log, a switch", full))
        ]
        if peer:
            line = peer_command(folder / "peer", python)
            agents.append(
                Agent(f"agent of {PEER}", ["sh", "-c", f"exec {line}"], environment, None, b"snapshot\n", PERIOD)
            )
        rows = measure(agents, seconds)
        for agent in agents:
            agent.close()
    click.echo(
        f"{'8 GPUs, every 2 s':34} {'% of a core':>11} {'RSS MiB':>8} {'PSS MiB':>8} {'processes':>9} {'bytes/s':>8}"
    )
    for label, cpu, rss, pss, processes, rate in rows:
        click.echo(f"{label:34} {cpu:11.3f} {rss:8.1f} {pss:8.1f} {processes:9d} {rate:8.0f}")
    click.echo(f"{'goal (probe)':34} {f'<= {PERCENT:g}':>11} {f'<= {MIB:g}':>8}")
    _, cpu, rss, *_ = rows[0]
    sys.exit(status((cpu, PERCENT), (rss, MIB)))


if __name__ == "__main__":
    run_program(main)
