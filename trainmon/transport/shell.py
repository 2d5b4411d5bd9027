"""A Shell runs commands on one host: this machine (`Local`), or another over SSH (trainmon.transport.ssh.client)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from trainmon.lib import CommandFailed, Seconds, TrainmonError

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes that run() keeps of one command; more is an error, not a swap storm on a laptop."""


class Completed(NamedTuple):
    """A finished command. `status` is the exit status, or minus the signal that ended it."""

    status: int
    stdout: bytes
    stderr: bytes


class Sink(Protocol):
    """Where the bytes of a stream go. Called on the reader's thread: must be quick, and must not raise."""

    def received(self, data: bytes) -> None: ...

    def complained(self, data: bytes) -> None:
        """Bytes of the remote standard error."""

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        """Called once, last: an exit status, or why the stream broke off. Both None: we closed it ourselves."""


class Stream(Protocol):
    """A running command."""

    def write(self, data: bytes) -> None:
        """Queue bytes for its standard input; never blocks. Does nothing once it has ended."""

    def close(self) -> None:
        """End it (its standard input closes); never blocks, does not wait for the remote side."""


class Shell(Protocol):
    """Commands on one host. argv end to end: one shell line, quoted by shlex, only where SSH itself needs one."""

    host: str

    @property
    def prompted(self) -> bool:
        """Whether a person had to answer something for this connection: it is then never redialled by itself."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end. Raises CommandFailed when it cannot start or takes longer than timeout."""

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        """Start a command whose output goes to sink piece by piece. Raises HostUnreachable or CommandFailed."""

    def close(self) -> None:
        """Drop the connection and everything on it; never blocks."""


class FinishingStream(Stream, Protocol):
    """A Stream whose input can end while its output goes on."""

    def finish(self) -> None: ...


class Streaming(Protocol):
    """What collect() needs of a Shell."""

    host: str

    def stream(self, argv: Sequence[str], sink: Sink) -> FinishingStream: ...


class Collected:
    """A sink that keeps everything, up to a limit, and lets one thread wait for the end."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.status: int | None = None
        self.error: TrainmonError | None = None
        self.done = threading.Event()
        self.too_long = False
        self._limit = limit

    def received(self, data: bytes) -> None:
        self._keep(self.stdout, data)

    def complained(self, data: bytes) -> None:
        self._keep(self.stderr, data)

    def _keep(self, kept: bytearray, data: bytes) -> None:
        if len(self.stdout) + len(self.stderr) + len(data) > self._limit:
            self.too_long = True
            self.done.set()
        else:
            kept += data

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.status, self.error = status, error
        self.done.set()


def collect(shell: Streaming, argv: Sequence[str], stdin: bytes, timeout: Seconds) -> Completed:
    """Run a command through a stream to its end. Raises CommandFailed when it does not answer in time."""
    collected = Collected()
    stream = shell.stream(argv, collected)
    if stdin:
        stream.write(stdin)
    stream.finish()
    answered = collected.done.wait(timeout)
    if not answered or collected.too_long:
        stream.close()
    if not answered:
        raise CommandFailed(f"{shell.host}: {argv[0]} did not end in {timeout:g} s")
    if collected.too_long:
        raise CommandFailed(f"{shell.host}: {argv[0]} printed more than {OUTPUT_LIMIT // 1024**2} MiB")
    if collected.error is not None:
        raise collected.error
    if collected.status is None:
        raise CommandFailed(f"{shell.host}: {argv[0]} ended without saying how")
    return Completed(collected.status, bytes(collected.stdout), bytes(collected.stderr))
