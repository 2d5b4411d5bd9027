"""The child process of the W&B collector as its parent sees it: started, sent requests, ended."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from collectors.wandb.wire import AnyAnswer, AnyRequest, ChildStarted, CoreStarted, RequestFailed, decode_answer, encode
from tests.lab.wandb_server import WandbServer

REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "collectors.wandb.child")
ANSWER = TypeVar("ANSWER")


class WandbChild:
    """A running child."""

    def __init__(self, environ: Mapping[str, str], within: float) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, str(within)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            env=dict(environ),
        )
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        self._rest = b""
        began = self.receive()
        assert isinstance(began, ChildStarted)
        self.directory = Path(began.directory)
        self.sidecar: int | None = None

    def ask(self, request: AnyRequest, within: float = 120.0) -> AnyAnswer:
        """One answer to one request."""
        self.send(encode(request))
        answer = self.receive(within)
        if isinstance(answer, CoreStarted):
            self.sidecar = answer.pid
            answer = self.receive(within)
        assert answer.id == request.id
        return answer

    def expect(self, kind: type[ANSWER], request: AnyRequest, within: float = 120.0) -> ANSWER:
        """The answer that it must be; the words of another are the test's failure."""
        answer = self.ask(request, within)
        assert isinstance(answer, kind), answer
        return answer

    def refused(self, request: AnyRequest, within: float = 120.0) -> RequestFailed:
        return self.expect(RequestFailed, request, within)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self, within: float = 120.0) -> AnyAnswer:
        """The next line."""
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, "the child says nothing"
            data = os.read(self._output, 1 << 20)
            assert data, f"the child has ended: {self.process.stderr.read() if self.process.stderr else ''!r}"
            self._rest += data
        answer, self._rest = self._rest.split(b"\n", 1)
        return decode_answer(answer)

    def leave(self) -> None:
        """Close its input, as a parent that ends does."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.leave()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def environ_of(server: WandbServer, home: Path, **more: str) -> dict[str, str]:
    """What a child finds set."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **server.environ, **more}
    return {name: value for name, value in environ.items() if value}


@contextlib.contextmanager
def running_child(server: WandbServer, home: Path, within: float = 100.0, **more: str) -> Iterator[WandbChild]:
    """A child that finds nothing set but this server; `more` is set besides, and what is empty is not set.

    `within`: the time for a request. The first starts the SDK, which takes one second, and many on a busy machine.
    """
    child = WandbChild(environ_of(server, home, **more), within)
    try:
        yield child
    finally:
        child.close()


def resident_mib(pid: int) -> float:
    """The memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")) / 1024
