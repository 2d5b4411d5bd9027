"""The threads of acting: one for each host, whose tasks are done in order, and one that waits for several answers."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from trainmon.actions.execution.preflight import both, unread
from trainmon.actions.planning import LookAt, Readback
from trainmon.lib import Seconds
from trainmon.slurm.client import Client
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

WAITING_TASKS = 64
"""For one host: a plan over many rows fits, and nothing piles up behind a host that hangs."""


class HostWorker:
    """The thread of one host: what it is given is done in order."""

    def __init__(self, host: str) -> None:
        self._tasks: queue.Queue[Callable[[], None]] = queue.Queue(WAITING_TASKS)
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"act {host}", daemon=True)
        self._thread.start()

    def give(self, task: Callable[[], None]) -> bool:
        """Whether there is room for it."""
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            return False
        return True

    def slurm(self, shell: Shell) -> Client:
        """Slurm's commands there; it remembers where they are while the connection lasts."""
        if self._client is None or self._client.shell is not shell:
            self._client = Client(shell)
        return self._client

    def stop(self) -> None:
        self._stopping.set()
        self.give(lambda: None)

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


class WorkRequest:
    """A question put to several hosts: answered once all have told, or when the time is up."""

    def __init__(self, looks: Sequence[LookAt], finish: Callable[[Readback], None]) -> None:
        self._looks = looks
        self.hosts = tuple(dict.fromkeys(look.host for look in looks))
        self._finish = finish
        self._parts: dict[str, Readback] = {}
        self._lock = threading.Lock()
        self._all_told = threading.Event()

    def of(self, host: str) -> tuple[LookAt, ...]:
        return tuple(look for look in self._looks if look.host == host)

    def start(self, seconds: Seconds) -> None:
        """Wait for the hosts on a thread of its own, which ends after `seconds`."""
        threading.Thread(target=self._wait, args=(seconds,), name="plan", daemon=True).start()

    def told(self, host: str, fresh: Readback) -> None:
        with self._lock:
            self._parts.setdefault(host, fresh)
            if len(self._parts) == len(self.hosts):
                self._all_told.set()

    def _wait(self, seconds: Seconds) -> None:
        self._all_told.wait(seconds)
        with self._lock:
            parts = dict(self._parts)
        whole = Readback()
        for host in self.hosts:
            words = f"{host} has not answered in {seconds:g} s"
            whole = both(whole, parts.get(host) or unread(self.of(host), words))
        self._finish(whole)
