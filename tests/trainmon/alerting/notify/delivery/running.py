"""A real program with a notification service, started and killed by tests; see duty_program."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.trainmon.alerting.notify.delivery.scene import PATIENT
from trainmon.alerting.notify.delivery.election import LEASE
from trainmon.lib import Seconds

ROOT = Path(__file__).parents[5]


class Program:
    """A real one, see duty_program. On a busy machine a ledger that works may answer late: only with less patience it
    soon tells people without it."""

    def __init__(
        self,
        directory: Path,
        disk: str = "local",
        *,
        sent_file: Path | None = None,
        lease: Seconds = LEASE,
        patience: Seconds = PATIENT,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.sent_file = sent_file or directory / "told"
        words = [str(directory), str(self.sent_file), disk, str(lease), str(patience)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.trainmon.alerting.notify.delivery.program", *words],
            cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.printed: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.put(line.strip())

    def says(self, holder: str) -> str:
        while not (line := self.printed.get(timeout=PATIENT)).startswith(f"{holder}|"):
            pass
        return line

    def fire(self, name: str) -> None:
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)

    def stop(self) -> None:
        """As Ctrl-Z or a debugger does."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENT)

    @property
    def came(self) -> list[str]:
        return self.sent_file.read_text().split() if self.sent_file.exists() else []


@contextmanager
def program(directory: Path, disk: str = "local", **options: Any) -> Iterator[Program]:
    made = Program(directory, disk, **options)
    try:
        yield made
    finally:
        made.kill()
        for pipe in (made.process.stdin, made.process.stdout):
            assert pipe is not None
            pipe.close()
