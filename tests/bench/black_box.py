"""A recording of 64 nodes x 8 GPUs and 8 runs for 40 minutes: `python -m tests.bench.black_box [NODES [MINUTES]]`.

The readings are decoded from the bytes of probes, and go through the engine with all rules, on a clock that does not
wait.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.recording import PERIOD, Recording, cluster
from tests.bench.replay import spec_of
from tests.bench.table import show, status
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import Instant
from trainmon.model import Event, NodeReading, RunsChanged
from trainmon.model.probe_wire import DECODER
from trainmon.runtime.recording import Player, Recorder

MIB, CORE, BACK = 20.0, 3.0, 1.0
"""The goals: MiB of the file, % of a core while it is recorded, seconds to go back."""


class VirtualClock:
    """A clock that is set."""

    def __init__(self, at: Instant) -> None:
        self.at = at

    def now(self) -> Instant:
        return self.at

    def monotonic(self) -> float:
        return self.at


def readings(tape: Recording, at: Instant) -> Iterator[Event]:
    """What a node sends in one period."""
    lines = b"" if tape.played else tape.opening(at).partition(b"\n")[2]
    for line in (lines + tape.sample(at)).splitlines():
        yield NodeReading(tape.name, "bench", at, DECODER.decode(line))


def record(file: Path, nodes: int, minutes: float) -> float:
    """Record a cluster; the seconds of processor time that the recording itself took."""
    clock = VirtualClock(1_790_000_000.0)
    engine = Engine(clock, alerting=AlertManager(tuple(rule() for rule in RULES), Routing(), None, clock=clock))
    recorder, spent, written = Recorder(file, print, is_ring=False), 0.0, 0
    steps: list[tuple[object, ...]] = []
    engine.takers.append(lambda *step: steps.append(step))
    tapes = list(cluster(nodes, 0.3, 8))
    engine.step([RunsChanged(tuple(spec_of(one.name, one.run) for one in tapes if one.run is not None))], clock.at)
    while clock.at < 1_790_000_000.0 + 60 * minutes:
        clock.at += 1.0
        half = tapes[int(clock.at) % int(PERIOD) :: int(PERIOD)]
        engine.step([event for one in half for event in readings(one, clock.at)], clock.at)
        began = time.process_time()
        for step in steps:
            written += 1
            recorder.write(written, *step)  # type: ignore[arg-type]
        spent += time.process_time() - began
        steps.clear()
    recorder.end()
    return spent


def main() -> int:
    nodes, minutes = [*map(int, sys.argv[1:]), 64, 40][:2] if len(sys.argv) < 3 else map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept) / "recording"
        core = 100 * record(file, nodes, minutes) / (60 * minutes)
        size = file.stat().st_size / (1 << 20)
        began = time.process_time()
        player = Player(file)
        opened = time.process_time() - began
        began = time.process_time()
        player.seek(player.line.end)
        played = time.process_time() - began
        began = time.process_time()
        player.seek(player.line.end - 10)
        back = time.process_time() - began
    rows = [
        ("size of the file", f"{size:.1f} MiB", f"{MIB:.0f} MiB"),
        ("recording it", f"{core:.1f} % of a core", f"{CORE:.0f} %"),
        ("opening it", f"{opened:.1f} s", ""),
        ("playing all of it", f"{played:.1f} s", ""),
        ("going back 10s at its end", f"{back:.1f} s", f"{BACK:.0f} s"),
    ]
    show(f"{nodes} nodes, {minutes} minutes", ("what", "now", "goal"), rows)
    return status((size, MIB), (core, CORE), (back, BACK))


if __name__ == "__main__":
    run_program(main)
