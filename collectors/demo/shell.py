"""The Shell of the demo's hosts: Slurm and lfs commands are simulated, all others run on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from collectors.demo.slurm.scheduler import Scheduler
from trainmon.lib import Seconds
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import Completed, Sink, Stream

LOGIN = ("bash", "-lc", 'exec "$@"', "bash")


LFS = "lfs"


class LocalHost:
    """A LocalShell for the demo's files. Its thread starts with the first command."""

    def __init__(self) -> None:
        self._reader: EventLoop | None = None
        self._local: LocalShell | None = None
        self._lock = threading.Lock()

    def local(self) -> LocalShell:
        with self._lock:
            if self._local is None:
                self._reader = EventLoop()
                self._reader.start()
                self._local = LocalShell(self._reader)
            return self._local

    def close(self) -> None:
        with self._lock:
            if self._local is not None and self._reader is not None:
                self._local.close()
                self._reader.stop()
            self._local = self._reader = None


class DemoShell:
    """A shell on one host of the demo."""

    prompted = False

    def __init__(
        self,
        host: str,
        scheduler: Scheduler,
        quota: Callable[[], str],
        lock: AbstractContextManager[object],
        local_host: LocalHost,
    ) -> None:
        """`lock` guards the world: commands come from other threads. `quota` returns the output of lfs."""
        self.host = host
        self._quota = quota
        self._scheduler = scheduler
        self._lock = lock
        self._local_host = local_host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Simulate a Slurm or lfs command; run any other command, such as one on a switch file."""
        with self._lock:
            words = _without_wrapper(argv)
            if words and self._scheduler.knows(words[0]):
                return self._scheduler.answer(words)
            if LFS in argv:
                return Completed(0, self._quota().encode(), b"")
        return self._local_host.local().run(argv, stdin=stdin, timeout=timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        return self._local_host.local().stream(argv, sink)

    def close(self) -> None:
        """Nothing to close."""


def _without_wrapper(argv: Sequence[str]) -> list[str]:
    """The command itself, without its `env` prefix or login shell."""
    words = list(argv)
    if tuple(words[: len(LOGIN)]) == LOGIN:
        return words[len(LOGIN) :]
    if words[:1] == ["env"]:
        words.pop(0)
        while words and (words[0] == "-u" or "=" in words[0]):
            del words[: 2 if words[0] == "-u" else 1]
    return words
