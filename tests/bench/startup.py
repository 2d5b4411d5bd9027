"""What `trainmon-tui --version` and `--help` take, beside importing click. Run: python -m tests.bench.startup"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.table import ratio, show

REACH = 3.0
ROUNDS = 15

PEER = "python -c 'import click'"
OURS = str(Path(sys.executable).parent / "trainmon-tui")
CASES = {
    PEER: [sys.executable, "-c", "import click"],
    "trainmon-tui --version": [OURS, "--version"],
    "trainmon-tui --help": [OURS, "--help"],
}


def seconds(argv: list[str]) -> float:
    """Wall time of one run."""
    started = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> int:
    """Run all of them in turn, so that a busy moment costs each the same, and compare the medians."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):
        for name, argv in CASES.items():
            times[name].append(seconds(argv))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    peer = medians.pop(PEER)
    rows = [[name, f"{taken * 1000:.0f} ms", f"{peer * 1000:.0f} ms", ratio(taken, peer), f"≤ {REACH:g}x"]
            for name, taken in medians.items()]  # fmt: skip
    show(f"start of the command line, median of {ROUNDS}", ["what", "ours", PEER, "ratio", "goal"], rows)
    return int(max(medians.values()) > REACH * peer)


if __name__ == "__main__":
    run_program(main)
