"""The Shell of the demo's hosts: its Slurm and its lfs answer from the world, all else runs on this machine."""

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


class Hands:
    """This machine, where the demo's files are. Its thread begins with the first command."""

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
    """One host of the demo."""

    prompted = False

    def __init__(
        self,
        host: str,
        scheduler: Callable[[], Scheduler],
        quota: Callable[[], str],
        world: AbstractContextManager[object],
        hands: Hands,
    ) -> None:
        """`world` is held while the scheduler answers: commands come from other threads than the demo's. `quota` is
        what lfs prints."""
        self.host = host
        self._quota = quota
        self._scheduler = scheduler
        self._world = world
        self._hands = hands

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """A command of Slurm is answered; all else, such as a switch file's, is done."""
        with self._world:
            scheduler, words = self._scheduler(), _bare(argv)
            if words and scheduler.knows(words[0]):
                return scheduler.answer(words)
            if LFS in argv:
                return Completed(0, self._quota().encode(), b"")
        return self._hands.local().run(argv, stdin=stdin, timeout=timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        return self._hands.local().stream(argv, sink)

    def close(self) -> None:
        """It is no connection."""


def _bare(argv: Sequence[str]) -> list[str]:
    """The command itself, without the environment that it is given or the login shell that runs it."""
    words = list(argv)
    if tuple(words[: len(LOGIN)]) == LOGIN:
        return words[len(LOGIN) :]
    if words[:1] == ["env"]:
        words.pop(0)
        while words and (words[0] == "-u" or "=" in words[0]):
            del words[: 2 if words[0] == "-u" else 1]
    return words
