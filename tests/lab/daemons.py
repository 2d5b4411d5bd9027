"""Daemons that run in the foreground, as children of ours, each with a log."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.lab.processes import proc_files

DEADLINE = 120.0


def program(name: str, package: str) -> str:
    """The path of a program; a missing one fails the run with the command that installs it."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(f"{name} is missing; install it: apt-get install -y --no-install-recommends {package}")
    return found


def until(condition: Callable[[], object], what: str, within: float = DEADLINE) -> None:
    """Wait for a condition, with a deadline. One that takes long, such as a command, is asked less often."""
    began = asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < began + within, f"not within {within:g} s: {what}"
        time.sleep(max(0.05, min(2.0, 2.0 * (now - asked))))
        asked = time.monotonic()


class Daemon:
    """One of them. Stopped and started again it keeps its log."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        assert self._process is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._argv, *more], env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ask it to end, and wait for that; nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(DEADLINE)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(DEADLINE)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def until(self, condition: Callable[[], object], what: str, within: float = DEADLINE) -> None:
        """Wait for a condition; fail with the log when the daemon ends before."""

        def holds() -> object:
            assert self.is_running, f"{self.name} ended: {self.log.read_text(errors='replace')[-2000:]}"
            return condition()

        try:
            until(holds, what, within)
        except AssertionError as error:
            error.add_note(self.log.read_text(errors="replace")[-2000:])
            raise


def end_marked(mark: str) -> None:
    """End every process that has an entry in its environment, but not ourselves."""
    for entry in proc_files("environ"):
        with contextlib.suppress(OSError):
            if int(entry.parent.name) != os.getpid() and mark.encode() in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGKILL)
