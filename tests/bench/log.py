"""A log at 1,000 lines/s through the whole dashboard: `python -m tests.bench.log [SECONDS]`.

A process writes the log, the probe on this machine follows it, and the dashboard shows it on a terminal of 120 columns.
Every turn of the screen's event loop is timed (messages, timers and painting alike), and every write to the terminal
counted.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.table import show, status
from tests.lab.terminal import Terminal

LINES = 1_000
SLOWEST_MS, WRITES = 50.0, 1.0
"""The goals: the slowest turn of the event loop, and writes to the terminal a second. No step may be lost."""

WRITER = """
import sys, time
step, begun = 0, time.monotonic()
with open(sys.argv[1], "a", buffering=1) as log:
    while True:
        due = int((time.monotonic() - begun) * 1000)
        while step < due:
            step += 1
            log.write(f"[rank0]:[titan] 2026-01-01 00:00:00,000 - root - INFO - step: {step}  loss:  2.0000  "
                      f"grad_norm:  0.3000  memory:  2.47GiB(3.12%)  tps: 3,502  tflops: 1.90  mfu: 0.19%\\n")
        time.sleep(0.01)
"""

APP = """
import asyncio, json, sys, time
from pathlib import Path
from textual.drivers.linux_driver import LinuxDriver
from trainmon.runtime.monitor import Monitor
from trainmon.config import load_settings
from tui.app import Dashboard

spent, writes = [], []
turn, write = asyncio.events.Handle._run, LinuxDriver.write

def timed(self):
    begun = time.monotonic()
    turn(self)
    spent.append((begun, time.monotonic() - begun))

def counted(self, data):
    writes.append((time.monotonic(), len(data)))
    write(self, data)

asyncio.events.Handle._run, LinuxDriver.write = timed, counted
settings, _ = load_settings(Path(sys.argv[1]), ())
parts = Monitor(settings, prompts=True)
parts.start()
Dashboard(parts).run()
run = parts.engine.state.runs["burst"]
parts.stop()
facts = {"spent": spent, "writes": writes, "step": run.progress.step, "dropped": run.log.dropped}
Path(sys.argv[2]).write_text(json.dumps(facts))
"""


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, config, out = folder / "burst.out", folder / "trainmon.toml", folder / "facts.json"
        log.touch()
        config.write_text(f'[[run]]\nname = "burst"\nlog = "{log}"\n')
        app = [sys.executable, "-c", APP, str(config), str(out)]
        with (
            subprocess.Popen([sys.executable, "-c", WRITER, str(log)]) as writer,
            contextlib.ExitStack() as ending,
            Terminal(app) as terminal,
        ):
            ending.callback(writer.kill)  # it would write for ever
            terminal.wait_for_text("dropped", timeout=30)
            begun = time.monotonic()
            time.sleep(seconds)
            ended = time.monotonic()
            writer.kill()
            writer.wait()
            last = log.read_text().count("\n")
            time.sleep(4)
            terminal.keys("q")
            terminal.wait()
        facts = json.loads(out.read_text())
    slowest = max(took for at, took in facts["spent"] if begun <= at <= ended)
    repaints = sum(begun <= at <= ended for at, _ in facts["writes"])
    show(
        f"A log at {LINES:,} lines/s for {seconds:.0f} s, 120 columns",
        ("what", "measured", "goal"),
        [
            ["slowest turn of the event loop, ms", f"{1000 * slowest:.1f}", f"<= {SLOWEST_MS:g}"],
            ["writes to the terminal, a second", f"{repaints / (ended - begun):.2f}", f"<= {WRITES:g}"],
            ["last step written / in the state", f"{last:,} / {facts['step']:,}", "the same"],
            ["lines that were dropped, and said so", f"{facts['dropped']:,}", ""],
        ],
    )
    most = WRITES * (ended - begun) + 1  # a span of 30 s that begins at a write has 31
    return status((1000 * slowest, SLOWEST_MS), (repaints, most), (abs(last - facts["step"]), 0))


if __name__ == "__main__":
    run_program(main)
