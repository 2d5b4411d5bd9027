"""One poller per cluster, on its own thread: it sends the scheduler's queue and nodes as events.

Without an answer nothing is known: the jobs stay as last observed, and the source shows the error and the age.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Literal

from collectors.slurm.poll import PolledQueue, Seen, Watched
from collectors.slurm.rate_limit import FLOOR, REFRESH, RateLimit
from trainmon.lib import Clock, HostUnreachable, Seconds, TrainmonError
from trainmon.model import ClustersChanged, Event, Source, SourceChanged
from trainmon.slurm import errors
from trainmon.slurm.client import Client, SlurmFailed

__all__ = ["Poller", "Watched"]

log = logging.getLogger(__name__)

PATIENCE: Seconds = 15.0
"""This long after the start, a host that is not connected yet is not an error."""


class Poller:
    """Asks one scheduler. `client_of` raises HostUnreachable where its host is not connected."""

    def __init__(
        self,
        watched: Watched,
        client_of: Callable[[], Client],
        submit: Callable[[Event], None],
        clock: Clock,
        seen: Seen = lambda jobs, me: None,
    ) -> None:
        """`seen` is called on the poller's thread with the jobs that are listed and who we are there."""
        self.watched = watched
        self._client_of = client_of
        self._submit = submit
        self._clock = clock
        self._queue = PolledQueue(watched, submit, clock, seen)
        self._pace = RateLimit(watched.every)
        self._client: Client | None = None
        self._requests: deque[str] = deque(maxlen=64)
        self._looked_at: dict[str, Seconds] = {}
        self._silent_until = float("-inf")
        """Until then nobody's question about one job is asked: the last had no answer."""
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slurm {watched.cluster}", daemon=True)
        self._source: Source | None = None
        self._started: Seconds = clock.monotonic()
        self._has_answered = False
        self._thoroughly = False

    def start(self) -> None:
        """Begin; returns at once."""
        self._submit(ClustersChanged((self._queue.cluster,)))
        self._tell("waiting")
        self._thread.start()

    def stop(self) -> None:
        """Stop. A command that hangs is not waited for."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.3)

    def hurry(self) -> None:
        """Poll more often for a while: something happens there."""
        self._request("hurry")

    def refresh(self) -> None:
        """Poll now, as a person asked for it; at most every 5 s."""
        self._request("refresh")

    def look_at(self, key: str) -> None:
        """Read the details of a job that a person looks at; each job at most every 5 s."""
        self._request(f"job {key}")

    def step(self) -> Seconds:
        """Do what is due. Returns the seconds until it should be called again."""
        while self._requests:
            self._serve(self._requests.popleft())
        wait = self._pace.due_in(self._clock.monotonic())
        if wait > 0:
            return wait
        self._look()
        return self._pace.due_in(self._clock.monotonic())

    def _run(self) -> None:
        while not self._stopping.is_set():
            wait = self.step()
            self._wake.wait(wait)
            self._wake.clear()

    def _request(self, what: str) -> None:
        self._requests.append(what)
        self._wake.set()

    def _serve(self, request: str) -> None:
        now = self._clock.monotonic()
        if request == "hurry":
            self._pace.hurry(now)
        elif request == "refresh":
            self._thoroughly = True
            self._pace.refresh(now)
        else:
            key = request.removeprefix("job ")
            if now - self._looked_at.get(key, float("-inf")) >= REFRESH:
                self._looked_at = {name: at for name, at in self._looked_at.items() if now - at < REFRESH} | {key: now}
                self._detail(key)

    def _detail(self, key: str) -> None:
        if self._clock.monotonic() < self._silent_until or (self._source is not None and self._source.phase != "up"):
            return  # it would only wait for its time limit, and the queue would wait for that
        try:
            self._queue.look_at(self._connected(), key)
        except TrainmonError as error:  # the next look at the queue will tell it, if it lasts
            log.info("%s: %s", key, error)
            if isinstance(error, SlurmFailed) and error.kind == "silent":
                self._silent_until = self._clock.monotonic() + FLOOR

    def _look(self) -> None:
        """Poll everything, and plan the next poll."""
        self._pace.begin(self._clock.monotonic())
        try:
            took, changed = self._queue.look(self._connected(), thoroughly=self._thoroughly)
        except SlurmFailed as failure:
            self._failed(failure)
        except HostUnreachable as error:
            self._unreached(error)
        except Exception as error:  # a fault of ours must not end the watch in silence: it becomes the source's error
            log.exception("%s", self.watched.cluster)
            self._failed(SlurmFailed(f"{type(error).__name__}: {error}", kind="refused"))
        else:
            self._thoroughly, self._has_answered = False, True
            now = self._clock.monotonic()
            if changed:
                self._pace.hurry(now)
            self._pace.answered(now, took, has_jobs=self._queue.has_jobs)
            self._tell("up")

    def _connected(self) -> Client:
        """The client of the connection as it is now; one that knows where its commands are is kept."""
        client = self._client_of()
        if self._client is None or client.shell is not self._client.shell:
            self._client = client
        return self._client

    def _failed(self, failure: SlurmFailed) -> None:
        now = self._clock.monotonic()
        unset = not self._has_answered and errors.is_without_configuration(failure.stderr)
        nowhere = failure.kind == "absent" or unset
        if nowhere:
            self._client = None
            self._pace.absent(now)
        else:
            self._pace.failed(now)
        if nowhere and not self.watched.required:
            self._tell("off", failure)
        else:
            self._tell("retrying", failure)

    def _unreached(self, error: HostUnreachable) -> None:
        now = self._clock.monotonic()
        self._pace.unreached(now)
        early = not self._has_answered and now - self._started < PATIENCE
        self._tell("waiting", None if early else error)

    def _tell(self, phase: Literal["waiting", "up", "retrying", "off"], error: TrainmonError | None = None) -> None:
        now = self._clock.now()
        source = Source(
            name=f"slurm:{self.watched.cluster}",
            kind="slurm",
            cluster=self.watched.cluster,
            seen_at=now if phase == "up" else None,
            period=self._pace.interval,
            phase=phase,
            retry_at=now + self._pace.interval if phase == "retrying" else None,
            error=error.message if error is not None else None,
            hint=(error.hint or None) if error is not None else None,
        )
        if source != self._source:
            self._source = source
            self._submit(SourceChanged(source))
