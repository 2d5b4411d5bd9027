"""One worker process: its pipes, the shared memory that names its running operation, and how it is ended."""

import mmap
import os
import struct
import time

from collectors.probe.stdlib import Callable

try:
    import _signal as signal  # type: ignore[import-not-found]  # without enum and collections: 1 MiB less
except ImportError:
    import signal

__all__ = ["Child", "Mark", "signal", "write"]

MARK_BYTES = 8192
"""The name of an operation on the longest path of Linux (4096 bytes) fits, with its header."""

HEADER = struct.Struct("=dII")
NAME_AT = 32


class Mark:
    """What a worker is doing, in shared memory. The parent reads it and never waits for a hung worker.

    It holds the running operation's name and start time, and the process group of the worker's command.
    """

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, MARK_BYTES)

    def start(self, name: bytes) -> None:
        """Called before an operation. The time is written last: until then nothing runs."""
        name = name[: MARK_BYTES - 64]
        self.memory[NAME_AT : NAME_AT + len(name)] = name
        self.memory[8:12] = struct.pack("=I", len(name))
        self.memory[:8] = struct.pack("=d", time.monotonic())

    def finish(self) -> None:
        self.memory[:8] = b"\0\0\0\0\0\0\0\0"

    def set_command_group(self, group: int) -> None:
        """A command runs in this process group; 0 when it has ended."""
        self.memory[12:16] = struct.pack("=I", group)

    def read(self) -> "tuple[float, str, int]":
        """The running operation's start (0 when none runs) and name, and the group of the running command."""
        since, length, group = HEADER.unpack(self.memory[: HEADER.size])
        name = self.memory[NAME_AT : NAME_AT + min(length, MARK_BYTES - 64)]
        return since, name.decode("utf-8", "surrogateescape"), group


class Child:
    """A forked worker. It reads requests from fd 0, and writes lines to fd 1."""

    def __init__(self, work: "Callable[[Mark], None]", trial_of: "str | None" = None) -> None:
        self.trial_of = trial_of
        self.mark = Mark()
        self.started_at = time.monotonic()
        self.rest = b""
        self.is_done = False
        self.status = None  # type: int | None
        requests, self.requests = os.pipe()
        self.lines, lines = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # Nothing of the parent's stays open: a hung child would keep the ssh session alive.
            try:
                for target, source in enumerate((requests, lines, os.open("/dev/null", os.O_RDWR))):
                    os.dup2(source, target)
                os.closerange(3, 256)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                work(self.mark)
            except BaseException:
                os._exit(1)
            os._exit(0)
        os.close(requests)
        os.close(lines)

    def send(self, request: bytes) -> None:
        """Write a request; nothing happens if the worker has ended."""
        try:
            os.write(self.requests, request)
        except OSError:
            self.rest = b""

    def received(self) -> "bytes | None":
        """The complete lines that it has written; None when it has ended."""
        data = os.read(self.lines, 65536)
        if not data:
            return None
        whole, newline, self.rest = (self.rest + data).rpartition(b"\n")
        return whole + newline

    def kill(self) -> None:
        """Kill it and the command that it started. It may not die at once, or at all; nothing waits for it."""
        for kill, target in ((os.kill, self.pid), (os.killpg, self.mark.read()[2])):
            if target:
                try:
                    kill(target, signal.SIGKILL)
                except OSError:
                    continue

    def has_exited(self) -> bool:
        """Whether the kernel has ended it; reaps it."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except OSError:
                pid, status = self.pid, 0
            if pid:
                self.status = status
        return self.status is not None

    def exit_text(self) -> str:
        """How it ended: `signal 9`, `status 1`."""
        for _ in range(10):  # its pipe closes a moment before it can be reaped
            if self.has_exited():
                break
            time.sleep(0.01)
        status = self.status or 0
        return "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "status %d" % os.WEXITSTATUS(status)


def write(data: bytes) -> None:
    """Write all of it to standard output."""
    while data:
        data = data[os.write(1, data) :]
