"""The dashboard fed with recorded bytes: `python -m tests.bench.replay NODES CHANGE [RUNS] [--history]` on a terminal.

The bytes take the real way: event loop, ProbeStream (lines, decoding), NodeCollector, engine, panes. Another process
plays the nodes, each into a pipe: only SSH is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from collectors.nodes.collector import NodeCollector
from collectors.supervisor import TICK
from tests.bench.recording import PERIOD, cluster, log_of
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds, SystemClock
from trainmon.model import Gpu, LogSpec, RunsChanged, RunSpec, Spec
from trainmon.runtime.backend import DashboardBackend
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import CHUNK, Completed, Sink, Transit


class Recorded:
    """A Shell whose one stream is a pipe."""

    prompted = False
    transit = Transit()

    def __init__(self, host: str, pipe: int, loop: EventLoop) -> None:
        self.host = host
        self.pipe = pipe
        self.loop = loop

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        return Completed(0, b"", b"")

    def stream(self, argv: Sequence[str], sink: Sink) -> Recorded:
        self.loop.register(self.pipe, lambda _events: sink.received(os.read(self.pipe, CHUNK)))
        return self

    def write(self, data: bytes) -> None:
        """The recording does not listen."""

    def close(self) -> None:
        self.loop.unregister(self.pipe)


class Replay(DashboardBackend):
    """An engine fed by a process that plays all nodes of a cluster; each of the first `runs` has a run."""

    def __init__(self, nodes: int, change: float, runs: int) -> None:
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(), None)
        super().__init__(Engine(alerting=alerting))
        submit, clock = self.engine.submit, SystemClock()
        self.loop = EventLoop()
        self.stopping = threading.Event()
        self.watches: list[NodeCollector] = []
        specs: list[RunSpec] = []
        pipes = [os.pipe() for _ in range(nodes)]
        for tape, (pipe, _) in zip(cluster(nodes, 0, runs), pipes, strict=True):
            shell = Recorded(tape.name, pipe, self.loop)
            watch = NodeCollector(tape.name, "bench", lambda shell=shell: shell, submit, clock, python="python3")
            watch.watch(
                Spec(period=PERIOD, logs=() if tape.run is None else (LogSpec(tape.run, log_of(tape.run)),)),
                frozenset(),
            )
            specs += () if tape.run is None else (spec_of(tape.name, tape.run),)
            self.watches.append(watch)
        submit(RunsChanged(tuple(specs)))
        inputs = [pipe for _, pipe in pipes]
        argv = [sys.executable, "-m", "tests.bench.recording", *map(str, (nodes, change, runs, *inputs))]
        self.player = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=inputs)
        for pipe in inputs:
            os.close(pipe)

    def start(self) -> None:
        super().start()
        self.loop.start()
        threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while not self.stopping.wait(TICK):
            for watch in self.watches:
                watch.tick()

    def stop(self) -> None:
        self.stopping.set()
        self.player.kill()
        self.player.wait()
        super().stop()


def spec_of(node: str, run: str) -> RunSpec:
    return RunSpec(name=run, cluster="bench", nodes=(node,), log=log_of(run))


def fill(engine: Engine, nodes: int) -> None:
    """An hour of history before now, for every node."""
    gpus = [
        Gpu(index=i, temperature_c=60 + i, memory_used_mib=71_000, utilization_pct=98, power_w=640.0) for i in range(8)
    ]
    now = time.time()
    for tape in cluster(nodes, 0):
        for i in range(1800):
            engine.rings.record_gpus(tape.name, now - 3600 + PERIOD * i, gpus, PERIOD)


def main() -> None:
    from tui.app import Dashboard

    has_history = "--history" in sys.argv
    nodes, change, *runs = (float(word) for word in sys.argv[1:] if word != "--history")
    replay = Replay(int(nodes), change, int(sum(runs)))
    if has_history:
        fill(replay.engine, int(nodes))
    replay.start()
    try:
        Dashboard(replay).run()
    finally:
        replay.stop()


if __name__ == "__main__":
    main()
