"""One worker process: its pipes, its mark, and how it is got rid of without ever waiting for it."""

import os
import time

from collectors.probe.progress_mark import Mark

try:
    import _signal as signal  # type: ignore[import-not-found]  # without enum and collections: 1 MiB less
except ImportError:
    import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Child:
    """A forked worker that reads orders from fd 0, and writes lines to fd 1."""

    def __init__(self, work: "Callable[[Mark], None]", only: "str | None" = None) -> None:
        self.only = only
        self.mark = Mark()
        self.begun = time.monotonic()
        self.rest = b""
        self.done = False
        self.status = None  # type: int | None
        orders, self.orders = os.pipe()
        self.lines, lines = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(work, orders, lines)
        os.close(orders)
        os.close(lines)

    def _live(self, work: "Callable[[Mark], None]", orders: int, lines: int) -> None:
        """Never returns. Nothing of the parent's stays open: a hung child would keep the ssh session alive."""
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for target, source in enumerate((orders, lines, null)):
                os.dup2(source, target)
            os.closerange(3, 256)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            work(self.mark)
        except BaseException:
            os._exit(1)
        os._exit(0)

    def order(self, line: bytes) -> None:
        """Tell it something; one that is gone does not mind."""
        try:
            os.write(self.orders, line)
        except OSError:
            self.rest = b""

    def received(self) -> "bytes | None":
        """The whole lines that it has written; None when it has ended."""
        data = os.read(self.lines, 65536)
        if not data:
            return None
        whole, newline, self.rest = (self.rest + data).rpartition(b"\n")
        return whole + newline

    def overdue(self, patience: "Callable[[str], float]") -> "str | None":
        """The name of an operation that has run for longer than it may."""
        since, name, _ = self.mark.read()
        if not since or time.monotonic() - since < patience(name):
            return None
        again, _, _ = self.mark.read()  # it may have moved on while we read
        return name if again == since else None

    def kill(self) -> None:
        """End it and what it started. It may not die at once, or at all: nobody waits."""
        group = self.mark.read()[2]
        for end, target in ((os.kill, self.pid), (os.killpg, group)):
            if target:
                try:
                    end(target, signal.SIGKILL)
                except OSError:
                    continue

    def close(self) -> None:
        os.close(self.orders)
        os.close(self.lines)

    def is_gone(self) -> bool:
        """Whether the kernel has let go of it; reaps it."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except OSError:
                pid, status = self.pid, 0
            if pid:
                self.status = status
        return self.status is not None

    def ending(self) -> str:
        """How it ended, in words."""
        for _ in range(10):  # its pipe closes a moment before it can be reaped
            if self.is_gone():
                break
            time.sleep(0.01)
        status = self.status or 0
        if os.WIFSIGNALED(status):
            return "signal %d" % os.WTERMSIG(status)
        return "status %d" % os.WEXITSTATUS(status)
