"""How soon a long `.wandb` file is on the screen, beside W&B's LEET. Run: python -m tests.bench.first_curve [ROWS]"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.bench.table import ratio, show, status
from tests.lab.terminal import Terminal
from tests.lab.wandb_training import OfflineTraining

ROWS = 80_000
FIRST, ALL = 2.0, 10.0
ROUNDS = 3
PATIENCE = 60.0
CURVE = re.compile("[\u2801-\u28ff]{4}")


def seconds(
    words: list[str], environ: Mapping[str, str], folder: Path, end: str, keys: str = ""
) -> tuple[float, float]:
    """Seconds until the first curve is drawn, and until all of the file was read. `keys` follow the first frame."""
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
                return first, now
            time.sleep(0.02)
    finally:
        terminal.close()
    raise AssertionError(f"never on the screen: {end}\n{terminal.text()}")


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
        root = Path(__file__).parents[2]
        environ = {"HOME": name, "PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8",
                   "PYTHONPATH": str(root), "COLORFGBG": "15;0"}  # fmt: skip
        ours = [sys.executable, "-m", "trainmon", "--config", str(config)]
        leet = [str(Path(sys.executable).parent / "wandb"), "beta", "leet", "run", str(run)]
        found = [
            (
                seconds(ours, environ, folder, rf"step {last:,}", "6"),
                seconds(leet, environ, folder, rf"_step +{last}\b"),
            )
            for _ in range(ROUNDS)
        ]
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
    sys.exit(main())
