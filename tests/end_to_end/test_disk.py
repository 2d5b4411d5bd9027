"""The screen of a disk, opened on a real directory: the run that saves there, and what could be deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.end_to_end.product import QUICK, Product, step_line


def save(folder: Path, step: int, ago: float) -> None:
    """A committed checkpoint of two shards, 6 MiB each and sparse."""
    made = folder / f"step-{step}"
    made.mkdir(parents=True)
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        (made / name).touch()
        os.truncate(made / name, 100 if name == ".metadata" else 6 << 20)
        os.utime(made / name, (time.time() - ago,) * 2)


def test_enter_on_a_disk_shows_the_run_that_saves_there_and_its_old_checkpoint(product: Product) -> None:
    log, saved = product.work / "train.log", product.work / "ckpt"
    log.write_text("".join(step_line(step) for step in range(190, 200)))
    save(saved, 100, 7_200.0)
    save(saved, 200, 60.0)
    config = product.config(
        f'[[run]]\nname = "llm"\nlog = "{log}"\ncheckpoints = "{saved}"\n[[disk]]\npath = "{product.work}"\n'
    )
    screen = product.screen("--config", str(config))
    screen.until_line("llm", r"\b199\b")
    screen.keys("3\r")
    text = screen.until_shown(
        r"run +→ llm  2 checkpoints 24 MiB, 12 MiB every 1h59m; log \d",
        r"in total +1 checkpoint, 12 MiB: no restart needs it",
        r"llm +\S*/step-100 +12M +2h old",
    )
    assert "step-200" not in text, "a restart needs it"
    share = screen.line("space").split("%")[0].split()[-1]
    inodes = screen.line("inodes").split("%")[0].split()[-1]
    screen.keys("\x1b")
    screen.until_shown("3 Disk", rf"{share}% +{inodes}%", rf"{share}% used, ")
    assert screen.leave() < QUICK
