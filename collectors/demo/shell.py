"""The Shell of the demo's hosts: Slurm and lfs commands are simulated, all others run on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from collectors.demo.slurm.scheduler import Scheduler
from trainmon.lib import Seconds
from trainmon.slurm.client import ON_A_LINE
from trainmon.transport.shell import Completed, Shell, Sink, Stream

LOGIN = ("bash", "-lc", 'exec "$@"', "bash")
LFS = "lfs"


class DemoShell:
    """A shell on one host of the demo."""

    prompted = False

    def __init__(
        self,
        host: str,
        scheduler: Scheduler,
        quota: Callable[[], str],
        lock: AbstractContextManager[object],
        local: Shell,
    ) -> None:
        """`lock` guards the world: commands come from other threads. `quota` returns the output of lfs."""
        self.host = host
        self._quota = quota
        self._scheduler = scheduler
        self._lock = lock
        self._local = local

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Simulate a Slurm or lfs command; run any other command, such as one on a switch file."""
        command = list(argv)  # without its login shell or its `env`
        if tuple(command[: len(LOGIN)]) == LOGIN:
            del command[: len(LOGIN)]
        elif command[:1] == ["env"]:
            del command[0]
            while command and (command[0] == "-u" or "=" in command[0]):
                del command[: 2 if command[0] == "-u" else 1]
        if tuple(command[: len(ON_A_LINE)]) == ON_A_LINE:
            del command[: len(ON_A_LINE)]
        with self._lock:
            if command and self._scheduler.knows(command[0]):
                return self._scheduler.answer(command, stdin)
            if LFS in argv:
                return Completed(0, self._quota().encode(), b"")
        return self._local.run(argv, stdin=stdin, timeout=timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        return self._local.stream(argv, sink)

    def close(self) -> None:
        """Nothing to close."""
