"""The poller and the fold without their threads: a look at the real queue whenever a test wants one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from collectors.slurm.collector import Poller, Watched
from tests.lab.daemons import until
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import Instant, Seconds
from trainmon.model import Event, Job, RunsChanged, RunSpec, SchedulerNode, Source, State
from trainmon.slurm.client import Client
from trainmon.transport.shell import Shell

LONG: Seconds = 1200.0
"""Longer than the poller ever waits between two looks."""


class SkippingClock:
    """The machine's own, but a test may skip the waiting."""

    def __init__(self) -> None:
        self.skipped: Seconds = 0.0

    def now(self) -> Instant:
        return time.time()

    def monotonic(self) -> Seconds:
        return time.monotonic() + self.skipped


class Polling:
    """What is known of the cluster `lab`, as of the last look."""

    def __init__(
        self,
        shell: Shell,
        *,
        users: Sequence[str] = (),
        nodes: Sequence[str] = (),
        spares: int = 0,
        runs: Sequence[RunSpec] = (),
    ) -> None:
        self.clock = SkippingClock()
        self._events: list[Event] = [RunsChanged(tuple(runs))]
        watched = Watched(
            cluster="lab", login="localhost", users=tuple(users), nodes=tuple(nodes), spares=spares, required=True
        )
        self.shell, client = shell, Client(shell)
        self.poller = Poller(watched, lambda: client, self._events.append, self.clock)
        self.state = State()

    def look(self) -> State:
        """Ask now, and take in what was said."""
        self.clock.skipped += LONG
        self.poller.step()
        events, self._events[:] = list(self._events), []
        self.state = reduce(self.state, events, self.clock.now())
        return self.state

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Look until something is so."""

        def holds() -> object:
            self.look()
            return condition()

        until(holds, what)

    def job(self, job_id: str) -> Job:
        return self.state.jobs[f"lab/{job_id}"]

    def node(self, name: str) -> SchedulerNode:
        return self.state.scheduler_nodes[name]

    @property
    def source(self) -> Source:
        return self.state.sources["slurm:lab"]
