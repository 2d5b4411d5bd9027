"""A probe that runs here as it does on a node: the same command line, the same bytes on standard input."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from collectors.probe import bundle
from trainmon.model import DECODER, AnyReading, Reading, Spec

R = TypeVar("R", bound=Reading)


class RunningProbe:
    """Starts a probe, keeps what it says, and waits for what it should say."""

    def __init__(
        self, environment: Mapping[str, str], *, python: str = "python3", cwd: str = "/", **spec: object
    ) -> None:
        self.readings: list[AnyReading] = []
        self.raw: list[bytes] = []
        self.greeting = b""
        self.news = threading.Condition()
        # A session of its own, as sshd gives it: with autogroups its nice 19 does not count against what else runs.
        self.process = subprocess.Popen(
            bundle.command(python), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            bufsize=0, env=dict(environment), cwd=cwd, start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        with self.news:
            assert self.news.wait_for(lambda: self.greeting or not self.reader.is_alive(), 40.0), "it does not greet"
        self.write(bundle.payload(self.greeting))
        self.ask(**spec)

    def ask(self, **spec: object) -> None:
        """Send a spec. Short periods unless told otherwise: tests are quick."""
        plain = {"period": 0.1, "slow": 0.4, "v": 1, **spec}
        self.write(
            bundle.spec_line(msgspec.convert(plain, Spec))
            if {"wandb", "ranks"} & {*spec}
            else msgspec.json.encode(plain)
        )
        self.write(b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def _read(self) -> None:
        assert self.process.stdout is not None
        rest = b""
        while data := self.process.stdout.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            with self.news:
                if lines and not self.greeting:
                    self.greeting = lines.pop(0)
                self.raw += lines
                self.readings += [DECODER.decode(line) for line in lines]
                self.news.notify_all()
        with self.news:
            self.news.notify_all()

    def wait(self, kind: type[R], test: Callable[[R], object] = bool, *, timeout: float = 120.0) -> R:
        """The first reading of a kind that passes; those that came before this call count too."""
        return self._wait(kind, test, 0, timeout)

    def wait_anew(self, kind: type[R], test: Callable[[R], object] = bool, *, timeout: float = 120.0) -> R:
        """The same, of readings that come from now on."""
        return self._wait(kind, test, len(self.readings), timeout)

    def _wait(self, kind: type[R], test: Callable[[R], object], seen: int, timeout: float) -> R:
        deadline = time.monotonic() + timeout
        with self.news:
            while True:
                for reading in self.readings[seen:]:
                    if isinstance(reading, kind) and test(reading):
                        return reading
                seen = len(self.readings)
                if time.monotonic() > deadline or not self.reader.is_alive():
                    raise AssertionError(f"no such {kind.__name__} within {timeout} s; last: {self.readings[-8:]}")
                self.news.wait(0.2)

    def tree(self) -> list[int]:
        """The probe's process and its descendants."""
        pids = [self.process.pid]
        for pid in pids:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            pids += [int(child) for child in children.read_text().split()] if children.exists() else []
        return pids

    def ended(self, timeout: float = 120.0) -> int:
        """Wait for its end; the exit status."""
        status = self.process.wait(timeout)
        self.reader.join(timeout)
        return status

    def complaints(self) -> bytes:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def __enter__(self) -> RunningProbe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        self.reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()


def until(test: Callable[[], object], timeout: float = 120.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + timeout
    while not test():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)
