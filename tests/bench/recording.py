"""A cluster as bytes: the NDJSON that probes on N nodes with 8 GPUs would send, sample after sample.

`python -m tests.bench.recording NODES CHANGE RUNS PIPE…` plays them, each node into its pipe, until nobody reads.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Iterator

import msgspec

from collectors.probe.bundle import GREETING
from trainmon.model import GpuFacts, GpuFactsAll, GpuSample, GpuSamples, Hello, HostSample, LogChunk, Process

ENCODE = msgspec.json.Encoder().encode

PERIOD = 2.0

SAMPLES = 32
"""Samples of a node that differ. They are played again and again."""
RECORDED = b"1234567890.5"
"""The time in a recorded sample."""


class Recording:
    """One node's lines. `change` is the share of GPUs whose numbers move from one sample to the next. `run` logs a step
    with each sample."""

    def __init__(self, name: str, change: float, gpus: int = 8, run: str | None = None) -> None:
        self.name = name
        self.run = run
        self.step = 50_000
        self.change = change
        self.random = random.Random(name)
        self.temperatures = [self.random.randint(55, 66) for _ in range(gpus)]
        self.used = [self.random.choice((0, 35, 70, 98)) for _ in range(gpus)]
        self.played = 0
        self.samples = [self.recorded() for _ in range(SAMPLES if change else 1)]

    def opening(self, at: float) -> bytes:
        """The greeting, hello, facts and the first host line."""
        facts = tuple(
            GpuFacts(
                index=i,
                uuid=f"GPU-{self.name}-{i}",
                name="NVIDIA H100 80GB HBM3",
                memory_total_mib=81_559,
                power_limit_w=700.0,
                temperature_margin_c=26,
                mig=False,
                ecc_uncorrected=0,
                ecc_corrected=0,
                remap_pending=False,
                remap_failed=False,
                processes=(Process(4242 + i, "ann", 70_000, "python train.py --config llm.toml"),),
            )
            for i in range(len(self.temperatures))
        )
        hello = Hello(1, at, self.name, python="3.11.7", probe="nvml", driver="550.90", cpu_count=192)
        lines = (hello, GpuFactsAll(1, at, facts, expected=len(facts)), self.host(at))
        return GREETING + b"\n" + b"".join(ENCODE(line) + b"\n" for line in lines)

    def host(self, at: float) -> HostSample:
        return HostSample(1, at, load1=12.0, memory_used_mib=400_000, memory_total_mib=2_000_000, oom_kills=0)

    def sample(self, at: float) -> bytes:
        """One period: the GPUs and the host, played from what was recorded. Making it costs more than reading it."""
        self.played += 1
        found = self.samples[self.played % len(self.samples)].replace(RECORDED, b"%.6f" % at)
        return found if self.run is None else found + ENCODE(self.log(at, self.run)) + b"\n"

    def recorded(self) -> bytes:
        """One sample, with a time that is replaced when it is played."""
        for i, temperature in enumerate(self.temperatures):
            if self.random.random() < self.change:
                self.temperatures[i] = min(70, max(50, temperature + self.random.choice((-1, 1))))
                self.used[i] = min(100, max(0, self.used[i] + self.random.choice((-9, -1, 1, 9))))
        gpus = tuple(
            GpuSample(i, None, False, temperature, temperature + 8, 71_234, self.used[i], 640.5, 1980, 0)
            for i, temperature in enumerate(self.temperatures)
        )
        at = float(RECORDED)
        return b"".join(ENCODE(line) + b"\n" for line in (GpuSamples(1, at, gpus), self.host(at)))

    def log(self, at: float, run: str) -> LogChunk:
        """The line of the next step."""
        self.step += 1
        line = f"step {self.step}/200000 | loss {2 + self.random.random():.4f} | lr 1.0e-4 | {at:.1f} s"
        return LogChunk(1, at, run, log_of(run), 80 * self.step, at, (line,), seen=1)


def log_of(run: str) -> str:
    return f"/logs/{run}.out"


def cluster(nodes: int, change: float, runs: int = 0) -> Iterator[Recording]:
    """The nodes; each of the first `runs` has a run of its own."""
    for i in range(1, nodes + 1):
        yield Recording(f"gpu-{i:03d}", change, run=f"exp-{i:02d}-lr1e-4-seed{i % 5}" if i <= runs else None)


def main() -> None:
    """Play all nodes, spread over each period. Those of GATHER come together, as they come over SSH."""
    from trainmon.transport.ssh.transport import GATHER

    nodes, runs, *pipes = (int(word) for word in (sys.argv[1], *sys.argv[3:]))
    players = list(zip(cluster(nodes, float(sys.argv[2]), runs), pipes, strict=True))
    started = time.monotonic()
    for turn, (tape, pipe) in enumerate(itertools.cycle(players)):
        due = started + turn * PERIOD / nodes // GATHER * GATHER
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.time()
        os.write(pipe, (b"" if tape.played else tape.opening(now)) + tape.sample(now))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the dashboard has ended
        sys.exit(0)
