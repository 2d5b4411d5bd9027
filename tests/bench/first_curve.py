"""How soon a long `.wandb` file is on the screen, beside W&B's LEET. Run: python -m tests.bench.first_curve [ROWS]"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.table import ratio, show, status
from tests.lab.terminal import Terminal
from tests.lab.wandb_training import OfflineTraining

ROWS = 80_000
FIRST, ALL = 2.0, 10.0
ROUNDS = 3
PATIENCE = 60.0
CURVE = re.compile("[\u2801-\u28ff]{4}")


def peak(pid: int) -> float:
    """MiB: the sum of the most that a process and each of those below it has held."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    held = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, text=True, check=False)
    return held / 1024 + sum(peak(int(child)) for child in below.stdout.split() if Path("/proc", child).exists())


def until_read(
    words: list[str], environ: Mapping[str, str], folder: Path, end: str, keys: str = ""
) -> tuple[float, float, float]:
    """Seconds until the first curve is drawn, and until all of the file was read, and the MiB that it took. `keys`
    follow the first frame."""
    argv = ["env", "-i", "-C", str(folder), *(f"{name}={value}" for name, value in environ.items()), *words]
    begun, first = time.monotonic(), 0.0
    terminal = Terminal(argv, columns=160, rows=45)
    try:
        while (now := time.monotonic() - begun) < PATIENCE:
            text = terminal.text()
            if keys and "1 Runs" in text:
                terminal.keys(keys)
                keys = ""
            first = first or (now if CURVE.search(text) else 0.0)
            if first and re.search(end, text) and "reading the file" not in text:
                return first, now, peak(terminal.pid)
            time.sleep(0.02)
    finally:
        terminal.close()
    raise AssertionError(f"never on the screen: {end}\n{terminal.text()}")


def both(folder: Path, config: Path, run: Path, last: int) -> tuple[tuple[float, float, float], ...]:
    """The dashboard with this config, and LEET with this run directory, until the screen shows the last step."""
    environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8",
               "PYTHONPATH": str(Path(__file__).parents[2]), "COLORFGBG": "15;0"}  # fmt: skip
    ours = [sys.executable, "-m", "trainmon", "--config", str(config)]
    leet = [str(Path(sys.executable).parent / "wandb"), "beta", "leet", "run", str(run)]
    return (
        until_read(ours, environ, folder, rf"step {last:,}", "6"),
        until_read(leet, environ, folder, rf"_step +{last}\b"),
    )


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with OfflineTraining(folder, f"log {rows * 10 // 11}") as training:
            training.wait()
        [run] = folder.glob("wandb/offline-run-*")
        size = sum(file.stat().st_size for file in run.glob("*.wandb"))
        config = folder / "c.toml"
        config.write_text(f'[[run]]\nname = "llm"\nwandb_dir = "{folder}/wandb"\n')
        last = rows * 10 // 11 + rows // 11 - 1
        found = [both(folder, config, run, last) for _ in range(ROUNDS)]
    table, measured = [], []
    for number, (what, goal) in enumerate((("the first curve", FIRST), ("all of it", ALL))):
        mine, theirs = (statistics.median(one[who][number] for one in found) for who in (0, 1))
        table.append([what, f"{mine:.1f} s", f"{theirs:.1f} s", ratio(mine, theirs), f"≤ {goal:g} s"])
        measured.append((mine, goal))
    show(
        f"from the start to the curves of {rows:,} rows, {size / 1e6:.0f} MB, median of {ROUNDS}",
        ["on the screen", "ours", "LEET", "ratio", "goal"], table,
    )  # fmt: skip
    return status(*measured)


if __name__ == "__main__":
    run_program(main)
