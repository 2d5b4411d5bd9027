"""What the tests with W&B share: a clock that skips ahead, a reader with the real client, a look at what runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_store import StoredRun

READER = Path(__file__).with_name("reader.py")
PATIENCE = 120.0

ONE_RETRY = {
    "WANDB__GRAPHQL_RETRY_MAX": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "1",
}
"""The SDK would try for minutes; none at all cannot be asked for."""


class ShiftedClock:
    """The machine's own, ahead by as much as a test skipped."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def now(self) -> float:
        return time.time() + self.skipped

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped


def reader(server: WandbServer, folder: Path, *, timeout: int = 20, **env: str) -> subprocess.Popen[str]:
    """Start a script with `wandb.Api` in it, that waits so many seconds for an answer."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = {"HOME": str(folder), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "WANDB_SILENT": "true", **ONE_RETRY}
    return subprocess.Popen(
        [sys.executable, str(READER), "tester/video", str(timeout)], cwd=folder,
        env=ours | server.environ_in(folder) | env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def answer(script: subprocess.Popen[str]) -> dict[str, Any]:
    """What the script read."""
    try:
        out, noise = script.communicate(timeout=PATIENCE)
    finally:
        script.kill()
    assert script.returncode == 0, noise
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def read(server: WandbServer, folder: Path) -> dict[str, Any]:
    return answer(reader(server, folder))


def logged(run: StoredRun | None, words: str) -> bool:
    """Whether a run's console log holds a line."""
    return run is not None and any(words in line.line for line in [*run.console.values()])
