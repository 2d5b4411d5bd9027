"""What the dashboard costs, fed with recorded bytes: CPU, memory, bytes to the terminal, time to the first frame.

Run `python -m tests.bench.dashboard`. CPU is the user and system time of the dashboard's process: reading and decoding
what nodes send, the engine with its rules, and drawing. Another process plays the nodes, through pipes in place of SSH.
It is not counted; `tests.bench.laptop` measures a dashboard with its SSH connections. The first frame is set beside
importing Textual's app, in the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from tests.bench.program import run_program
from tests.bench.replay import fill
from tests.bench.table import ratio, show, status
from tests.lab.terminal import Cost, Terminal
from trainmon.engine.engine import Engine

BUSY_BYTES, IDLE_BYTES, PERCENT, MIB, STARTS = 300, 100, 5.0, 220.0, 3.0
"""The goals: bytes/s to the terminal, % of a core and MiB of 256 nodes, and the start in that of importing Textual."""
SETTLE = 20.0
SPAN = 40.0


def replay(
    nodes: int, change: float, *options: str, ready: str = "gpu-0", size: tuple[int, int] = (120, 40)
) -> tuple[Cost, Cost]:
    """Costs at the begin and the end of a quiet span of a running dashboard."""
    argv = [sys.executable, "-m", "tests.bench.replay", str(nodes), str(change), *options]
    with Terminal(argv, columns=size[0], rows=size[1], env={"COLORTERM": "truecolor"}) as terminal:
        terminal.wait_for_text(ready, timeout=90)
        time.sleep(SETTLE)
        before = terminal.cost()
        time.sleep(SPAN)
        return before, terminal.cost()


def percent(before: Cost, after: Cost) -> float:
    return 100 * (after.cpu_s - before.cpu_s) / (after.at - before.at)


def rate(before: Cost, after: Cost) -> float:
    return (after.written - before.written) / (after.at - before.at)


def first_frame(argv: list[str], env: Mapping[str, str]) -> float:
    """Seconds from the start of a process to its first full frame on the terminal."""
    with Terminal(argv, env=env) as terminal:
        terminal.wait_for(b"DEMO", timeout=30)
        return time.monotonic() - terminal.started_at


def textual_import(env: Mapping[str, str]) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import textual.app"], check=True, env={**os.environ, **env})
    return time.monotonic() - started


def starts() -> tuple[list[float], list[float]]:
    """Seconds of five imports of Textual and five starts of the demo, in turn, after one of each: like an installer,
    it compiles all modules. A checkout whose bytecode nobody may write would compile ours each time, but not
    Textual's."""
    with tempfile.TemporaryDirectory() as compiled:
        env = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        argv = [sys.executable, "-m", "trainmon", "--demo"]
        both = [(textual_import(env), first_frame(argv, env)) for _ in range(1 + 5)]
    imports, frames = zip(*both[1:], strict=True)
    return [*imports], [*frames]


def history_mib(nodes: int) -> float:
    """MiB of an hour of history of this many nodes, counted in its arrays."""
    engine = Engine()
    fill(engine, 1)
    history = engine.rings
    rings = [ring for by in (history._hour, history._day, *history._disk_rings) for ring in by.values()]
    return sum(len(ring.times) * 8 + len(ring.values) * ring.values.itemsize for ring in rings) * nodes / 2**20


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> int:
    calm = replay(64, 0.05)
    idle = replay(64, 0.0)
    many = replay(256, 0.05, "--history")
    wide = replay(300, 0.05, "60", size=(200, 60))
    rows = [
        ["64 x 8, 5% of cells change: bytes/s to the terminal", f"{rate(*calm):.0f}", f"<= {BUSY_BYTES}"],
        ["64 x 8, nothing changes: bytes/s", f"{rate(*idle):.0f}", f"<= {IDLE_BYTES}"],
        ["64 x 8, 5%: CPU % of a core", f"{percent(*calm):.1f}", ""],
        ["256 x 8, an hour of history: CPU % of a core", f"{percent(*many):.1f}", f"<= {PERCENT:g}"],
        ["300 x 8, 5%, 60 runs, 200 x 60 cells: CPU % of a core", f"{percent(*wide):.1f}", f"<= {PERCENT:g}"],
        ["300 x 8, 5%, 60 runs, 200 x 60 cells: bytes/s", f"{rate(*wide):.0f}", ""],
        ["2,048 GPUs x 4 metrics, an hour of history itself: MiB", f"{history_mib(256):.0f}", ""],
        ["256 x 8, an hour of history: RSS MiB", f"{many[1].rss_mib:.0f}", f"<= {MIB:g}"],
    ]
    show("The dashboard on recorded bytes, 120 columns", ("what", "measured", "goal"), rows)
    theirs, ours = map(median, starts())
    show(
        "Process start to the first painted frame of --demo (median of 5, in turn)",
        ("what", "seconds", "ratio", "goal"),
        [
            ["import textual.app", f"{theirs:.2f}", "1", ""],
            ["--demo", f"{ours:.2f}", ratio(ours, theirs), f"<= {STARTS:g}x"],
        ],
    )
    return status(
        (rate(*calm), BUSY_BYTES), (percent(*wide), PERCENT),
        (rate(*idle), IDLE_BYTES), (percent(*many), PERCENT), (many[1].rss_mib, MIB),
        (ours, STARTS * theirs),
    )  # fmt: skip


if __name__ == "__main__":
    run_program(main)
