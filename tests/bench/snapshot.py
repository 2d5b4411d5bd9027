"""What `trainmon-tui snapshot` of this machine takes. Run: python -m tests.bench.snapshot"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.nvml import Nvml

REACH = 1.0
ROUNDS = 15
OURS = str(Path(sys.executable).parent / "trainmon-tui")


def main() -> int:
    """Run all cases in turn, without Slurm on the path, so that a busy moment costs each the same."""
    with tempfile.TemporaryDirectory() as home:
        Path(home, "sh").symlink_to("/bin/sh")
        plain = {**os.environ, "HOME": home, "PATH": home}
        cases = {"no driver": plain}
        for gpus in (0, 8):
            (folder := Path(home, str(gpus))).mkdir()
            cases[f"NVML with {gpus} GPUs"] = plain | Nvml(folder, gpus=gpus).environment() | {"PATH": plain["PATH"]}
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, env in cases.items():
                started = time.perf_counter()
                subprocess.run([OURS, "snapshot"], env=env, cwd=home, stdout=subprocess.DEVNULL, check=True)
                taken[name].append(time.perf_counter() - started)
    rows = [
        [name, f"{statistics.median(times):.2f} s", f"{max(times):.2f} s", f"≤ {REACH:g} s"]
        for name, times in taken.items()
    ]
    show(f"`snapshot` of this machine, {ROUNDS} times", ["GPUs", "median", "slowest", "goal"], rows)
    return int(max(map(statistics.median, taken.values())) > REACH)


if __name__ == "__main__":
    run_program(main)
