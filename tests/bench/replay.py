"""The dashboard fed with recorded bytes: `python -m tests.bench.replay NODES CHANGE [RUNS] [--history]` on a terminal.

The bytes take the real way: Feed (lines, decoding), Watch, engine, panes. Only the connection is a recording.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from collectors.nodes.collector import NodeCollector
from tests.bench.recording import Recording, cluster, log_of
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds, SystemClock
from trainmon.model import Gpu, LogSpec, RunsChanged, RunSpec, Spec
from trainmon.runtime.backend import DashboardBackend
from trainmon.transport.shell import Completed, Sink, Transit

PERIOD = 2.0


class Recorded:
    """A Shell whose one stream is a recording."""

    prompted = False
    transit = Transit()

    def __init__(self, host: str) -> None:
        self.host = host
        self.sink: Sink | None = None

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        return Completed(0, b"", b"")

    def stream(self, argv: Sequence[str], sink: Sink) -> Recorded:
        self.sink = sink
        return self

    def write(self, data: bytes) -> None:
        """The recording does not listen."""

    def close(self) -> None:
        self.sink = None


class Replay(DashboardBackend):
    """An engine fed with all nodes of a cluster, spread over each period; each of the first `runs` has a run."""

    def __init__(self, nodes: int, change: float, runs: int) -> None:
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(), None)
        super().__init__(Engine(alerting=alerting))
        submit = self.engine.submit
        self.shells = [(Recorded(tape.name), tape) for tape in cluster(nodes, change, runs)]
        submit(RunsChanged(tuple(spec_of(tape.name, tape.run) for _, tape in self.shells if tape.run is not None)))
        clock = SystemClock()
        self.watches = [
            NodeCollector(tape.name, "bench", lambda shell=shell: shell, submit, clock, python="python3")
            for shell, tape in self.shells
        ]
        self.stopping = threading.Event()

    def start(self) -> None:
        super().start()
        for watch, (_, tape) in zip(self.watches, self.shells, strict=True):
            logs = () if tape.run is None else (LogSpec(tape.run, log_of(tape.run)),)
            watch.watch(Spec(period=PERIOD, logs=logs), frozenset())
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for watch in self.watches:
            watch.tick()
        opened: set[str] = set()
        while not self.stopping.is_set():
            for shell, tape in self.shells:
                self._play(shell, tape, opened)
                time.sleep(PERIOD / len(self.shells))
            for watch in self.watches:
                watch.tick()

    def _play(self, shell: Recorded, tape: Recording, opened: set[str]) -> None:
        if shell.sink is None:
            return
        now = time.time()
        if tape.name not in opened:
            opened.add(tape.name)
            shell.sink.received(tape.opening(now))
        shell.sink.received(tape.sample(now))

    def stop(self) -> None:
        self.stopping.set()
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
