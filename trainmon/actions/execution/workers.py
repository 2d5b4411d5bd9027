"""Threads for actions: one per host, which runs its tasks in order, and one per plan that waits for several hosts."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import reduce

from trainmon.actions.execution.preflight import merged, unreadable
from trainmon.actions.planning import Readback, ReadRequest
from trainmon.lib import Seconds
from trainmon.slurm.client import Client
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

QUEUE_SIZE = 64
"""Tasks for one host: a plan over many rows fits, and nothing piles up behind a host that hangs."""


class HostWorker:
    """The thread of one host, which runs its tasks in order."""

    def __init__(self, host: str) -> None:
        self._tasks: queue.Queue[Callable[[], None]] = queue.Queue(QUEUE_SIZE)
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"act {host}", daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], None]) -> bool:
        """Add a task; false where the queue is full."""
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            return False
        return True

    def slurm(self, shell: Shell) -> Client:
        """The Slurm client of this connection. It remembers where Slurm's commands are."""
        if self._client is None or self._client.shell is not shell:
            self._client = Client(shell)
        return self._client

    def stop(self) -> None:
        self._stopping.set()
        self.submit(lambda: None)

    def join(self, seconds: Seconds) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            task = self._tasks.get()
            if self._stopping.is_set():
                return
            try:
                task()
            except Exception:
                log.exception("a task of %s failed", self._thread.name)


class PendingReads:
    """Reads on several hosts: finished once all hosts have answered, or when the time is up."""

    def __init__(self, reads: Sequence[ReadRequest], finish: Callable[[Readback], None]) -> None:
        self._reads = reads
        self.hosts = tuple(dict.fromkeys(read.host for read in reads))
        self._finish = finish
        self._parts: dict[str, Readback] = {}
        self._lock = threading.Lock()
        self._complete = threading.Event()

    def start(self, seconds: Seconds) -> None:
        """Wait for the hosts on a thread of its own, which ends after `seconds`."""
        threading.Thread(target=self._wait, args=(seconds,), name="plan", daemon=True).start()

    def received(self, host: str, readback: Readback | str) -> None:
        """Take what was read on a host, or why nothing could be read there."""
        with self._lock:
            if isinstance(readback, str):
                readback = unreadable((read for read in self._reads if read.host == host), readback)
            self._parts.setdefault(host, readback)
            if len(self._parts) == len(self.hosts):
                self._complete.set()

    def _wait(self, seconds: Seconds) -> None:
        self._complete.wait(seconds)
        for host in self.hosts:
            self.received(host, f"{host} has not answered in {seconds:g} s")
        self._finish(reduce(merged, (self._parts[host] for host in self.hosts), Readback()))
