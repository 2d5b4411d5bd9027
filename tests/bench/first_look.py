"""What the first look without a config shows after how long. Run: python -m tests.bench.first_look"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from pathlib import Path

from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.slurm import Slurm
from tests.lab.wandb_server import WandbServer
from tests.slurm.conftest import open_directory
from tests.slurm.first_look import SHOWN, login_host, submit

GOAL = 15.0
PATIENCE = 90.0


def main() -> int:
    """Start the dashboard beside a running nanoGPT, and note when each thing is on its screen for the first time."""
    seen: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        slurm = stack.enter_context(Slurm.start(stack.enter_context(open_directory())))
        server = stack.enter_context(WandbServer.start())
        submit(slurm, server)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        product = stack.enter_context(login_host(folder, slurm, server))
        started = time.monotonic()
        screen = product.look()
        while len(seen) < len(SHOWN) and time.monotonic() - started < PATIENCE:
            text, at = screen.text(), time.monotonic() - started
            seen |= {name: at for name, one in SHOWN.items() if name not in seen and re.search(one, text)}
            time.sleep(0.05)
        screen.leave()
    rows = [[name, f"{seen[name]:.1f} s" if name in seen else "never", f"≤ {GOAL:g} s"] for name in SHOWN]
    show("a job of nanoGPT on a real Slurm, without a config", ["what", "on the screen after", "goal"], rows)
    return int(len(seen) < len(SHOWN) or max(seen.values()) > GOAL)


if __name__ == "__main__":
    run_program(main)
