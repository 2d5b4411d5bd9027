"""Commands for trainmon-run, and what a person sees of them: bare, or in the wrapper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trainmon import job

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable

TRAINER = """
import os, signal, sys, time
told = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
ends = []
def note(number, frame):
    os.write(told, (signal.Signals(number).name + "\\n").encode())
    if number == signal.SIGTERM:
        ends.append(time.monotonic() + 0.2)
for name in ("TERM", "USR1", "USR2", "INT", "HUP", "CONT", "WINCH", "QUIT"):
    signal.signal(getattr(signal, "SIG" + name), note)
os.write(told, b"ready %d\\n" % os.getpid())
while not ends or time.monotonic() < ends[0]:
    time.sleep(0.02)
print("SAVED", flush=True)
sys.exit(7)
"""
"""Writes each signal that it gets, and ends soon after TERM. No file of Python: a signal that comes while one is
flushed cannot be written to it."""


class Seen(NamedTuple):
    """What a command has left."""

    status: int
    """As subprocess has it: minus the signal that ended it."""
    out: bytes
    err: bytes


def script(folder: Path) -> str:
    """The printed script."""
    path = folder / "trainmon-run"
    path.write_text(job.run_script())
    return str(path)


def wrapped(folder: Path, *options: str) -> list[str]:
    """What stands before a command."""
    return [PYTHON, "-I", "-S", script(folder), "--receipts", str(folder / "receipts"), *options, "--"]


def receipt(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    (one,) = (folder / "receipts").iterdir()
    assert one.stat().st_mode & 0o777 == 0o700
    return json.loads((one / "start.json").read_text()), json.loads((one / "end.json").read_text())


def seen(argv: Sequence[str], **options: object) -> Seen:
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False, **options)  # type: ignore[call-overload]
    return Seen(done.returncode, done.stdout, done.stderr)


class Training:
    """A TRAINER in a process group of its own, bare or wrapped."""

    def __init__(self, folder: Path, before: Sequence[str]) -> None:
        self.told = folder / f"told-{time.monotonic_ns()}"
        argv = [*before, sys.executable, "-c", TRAINER, str(self.told)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)
        until(lambda: self.told.exists() and "ready" in self.told.read_text())
        self.pid = int(self.told.read_text().split()[1])

    def signals(self) -> list[str]:
        return self.told.read_text().splitlines()[1:]

    def is_idle(self, *pids: int) -> bool:
        """Whether no signal is pending at these, else at the wrapper or its companion: all have been looked at."""
        of = pids or [self.process.pid, *self.others()]
        return not any(int(line.split()[1], 16) for pid in of for line in self._status(pid) if "Pnd:" in line)

    def others(self) -> list[int]:
        """The command and the companion."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    @staticmethod
    def _status(pid: int) -> list[str]:
        return Path(f"/proc/{pid}/status").read_text().splitlines()


def state_of(pid: int) -> str:
    """T if the process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(fact: object, patience: float = 120.0, every: float = 0.01) -> None:
    assert callable(fact)
    deadline = time.monotonic() + patience
    while not fact():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(every)


@contextmanager
def training(folder: Path, before: Sequence[str]) -> Iterator[Training]:
    found = Training(folder, before)
    try:
        yield found
    finally:
        for kill in (lambda: os.killpg(found.process.pid, signal.SIGKILL), lambda: os.kill(found.pid, signal.SIGKILL)):
            try:
                kill()
            except ProcessLookupError:
                continue
        found.process.communicate()
