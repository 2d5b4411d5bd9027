"""What following logs costs a node: `python -m tests.bench.tails`. One log at 1,000 lines/s, and an idle one."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from collectors.probe.files.logs import Logs
from tests.bench.program import run_program
from tests.bench.table import show
from trainmon.analysis.log_formats import KEEP

PERIOD = 2.0
PERIODS = 30
STEP = " iteration %8d/  115311 | elapsed time per iteration (s): 2.00 | lm loss: 2.113567E+00 | grad norm: 0.139 |\n"
OTHER = "[rank0]: 2025-10-30 14:32:58,897 - root - INFO - what else a training loop has to say, %07d times over\n"


def burst(folder: Path, every: int) -> tuple[float, float]:
    """CPU seconds and JSON bytes a period, with a step line every so many lines."""
    path = folder / f"{every}.out"
    path.touch()
    logs = Logs({"logs": [{"id": "run", "pattern": str(path)}], "keep": KEEP})
    cpu, sent = 0.0, 0
    for _ in range(PERIODS):
        with path.open("a") as file:
            file.writelines((OTHER if i % every else STEP) % i for i in range(int(1000 * PERIOD)))
        began = time.process_time()
        sent += sum(len(json.dumps(operation())) for _, operation in logs.operations(slow=False))
        cpu += time.process_time() - began
    return cpu / PERIODS, sent / PERIODS


def idle(folder: Path) -> float:
    """CPU seconds a period of a glob that has matches and does not grow."""
    logs = Logs({"logs": [{"id": "run", "pattern": str(folder / "*.out")}], "keep": KEEP})
    times = 5000
    began = time.process_time()
    for _ in range(times):
        for _, operation in logs.operations(slow=False):
            operation()
    return (time.process_time() - began) / times


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = []
        for every, what in ((1, "every line a step"), (50, "every 50th line a step"), (10**9, "no step lines")):
            cpu, sent = burst(folder, every)
            rows.append(
                (f"1,000 lines/s, {what}", f"{cpu * 1e3:.2f} ms", f"{cpu / PERIOD:.3%}", f"{sent / 1024:.0f} KiB")
            )
        cpu = idle(folder)
        rows.append(("idle", f"{cpu * 1e3:.3f} ms", f"{cpu / PERIOD:.4%}", "0 KiB"))
        show("One followed log, a look every 2 s", ("what", "a look", "of a core", "sent a look"), rows)


if __name__ == "__main__":
    run_program(main)
