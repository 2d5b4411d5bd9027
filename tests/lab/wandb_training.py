"""A training script that a test runs against the W&B stand-in: told what to do, waited for, killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab.processes import proc_files
from tests.lab.wandb_server import WandbServer

SCRIPT = Path(__file__).with_name("wandb_trainer.py")
PATIENCE = 120.0

QUICKLY = {
    "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "1", "WANDB__FILE_STREAM_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__FILE_STREAM_RETRY_WAIT_MAX_SECONDS": "1", "WANDB__DISABLE_STATS": "true", "WANDB_SILENT": "true",
}  # fmt: skip
"""The client sends what it has after a second instead of 15 (it knows whole ones only), and measures no machine."""


class Training:
    """One attempt, a process of its own with the real client in it."""

    def __init__(self, server: WandbServer, folder: Path, *words: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "trainer.log"
        env = {"HOME": str(folder), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "USER": "tester"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *words], env=env | server.environ_in(folder) | QUICKLY, cwd=folder,
                stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip

    @classmethod
    @contextlib.contextmanager
    def start(cls, server: WandbServer, folder: Path, *words: str) -> Iterator[Training]:
        """`words` are the script's options and deeds; what still runs at the end is killed."""
        training = cls(server, folder, *words)
        try:
            yield training
        finally:
            training.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, *deeds: str) -> None:
        """What it does next."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{deed}\n" for deed in deeds).encode())
        self._process.stdin.flush()

    def wait(self, *deeds: str) -> int:
        """Let it do these as its last, and end; its exit status."""
        self.tell(*deeds)
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE)

    def has_a_sidecar(self) -> bool:
        """Whether the SDK's own process still runs: it may send a heartbeat for a killed trainer."""
        mine = f"--pid\0{self.pid}\0".encode()
        for path in proc_files("cmdline"):
            with contextlib.suppress(OSError):
                if mine in path.read_bytes():
                    return True
        return False

    def kill(self) -> None:
        """As the out-of-memory killer does."""
        self._process.kill()
        self._process.wait(PATIENCE)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


class OfflineTraining:
    """The same script offline: the client writes its file into the folder `wandb`, and asks no server."""

    def __init__(self, folder: Path, *words: str, environ: Mapping[str, str] | None = None) -> None:
        env = {"HOME": str(folder), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "USER": "tester"}
        env |= {**QUICKLY, "WANDB_MODE": "offline", **(environ or {})}
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words], env=env, cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> OfflineTraining:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait(self) -> int:
        """Let it end; its exit status."""
        self._process.communicate(timeout=2 * PATIENCE)
        return self._process.returncode
