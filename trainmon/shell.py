"""A Shell runs commands on one host: this machine (`Local`), or another over SSH (trainmon.ssh)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from trainmon.clock import Seconds
from trainmon.errors import TrainmonError


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
        """Called once, last: an exit status, or why the stream broke off."""


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
