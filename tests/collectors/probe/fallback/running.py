"""The sh probe as a client starts it, under each shell."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collectors.probe import bundle
from trainmon.model import probe_wire as readings

SCRIPT = bundle.FALLBACK[1]
SMI = Path(__file__).parents[3] / "lab" / "fake_nvidia_smi.sh"
SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
F_SETPIPE_SZ = 1031


class Fallback:
    """A running fallback, its lines, and every process it started."""

    def __init__(self, shell: str, paths: list[str], env: dict[str, str]) -> None:
        argv = [*SHELLS[shell], "-c", SCRIPT.read_text(), "sh", "1", *paths]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            bufsize=0,
            start_new_session=True,  # as sshd does
        )
        self.pending = b""

    def line(self, within: float = 120.0) -> Any:
        """The next line, decoded; None at the end of the output."""
        assert self.process.stdout
        deadline = time.monotonic() + within
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no line in {within}s"
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        return readings.DECODER.decode(line)

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        for _ in range(100):
            reading = self.line()
            assert reading is not None, f"it ended: {self.stderr()}"
            if wanted(reading):
                return reading
        raise AssertionError("100 lines, and not the one that was wanted")

    def first(self, kind: type) -> Any:
        return self.until(lambda reading: isinstance(reading, kind))

    def beat(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"\n")

    def family(self) -> list[int]:
        """The processes that it started and that live."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except OSError:
                continue
            todo += map(int, below)
            found += map(int, below)
        return found

    def finish(self) -> None:
        """End it as a client does; what is left then is killed."""
        with self.process:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=3)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def stderr(self) -> str:
        assert self.process.stderr
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"").decode()


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    waiter = select.poll()
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        waiter.poll(50)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
