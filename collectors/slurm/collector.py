"""One poller per cluster, on its own thread: it sends the scheduler's queue and nodes as events.

Without an answer nothing is known: the jobs stay as last observed, and the source shows the error and the age.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Literal

from collectors.connections import local_hostname
from collectors.polling_thread import MIN_REFRESH, PollingThread
from collectors.slurm.poll import MIN_INTERVAL, OnPoll, PolledQueue, RateLimit, UnwatchedSince, Watched
from trainmon.config import ClusterSettings, Settings, queue_users
from trainmon.lib import Clock, HostUnreachable, Seconds, TrainmonError
from trainmon.model import Cluster, ClustersChanged, Event, Source, SourceRemoved
from trainmon.slurm import errors
from trainmon.slurm.client import Client, SlurmFailed

# ---- one poller per cluster, on its own thread -----------------------------------------------------------------------

__all__ = ["Poller", "Watched"]

log = logging.getLogger(__name__)

ENDED_EVERY: Seconds = 300.0
"""Between two requests for the jobs that have ended: a query of the accounts costs a site much."""

CONNECT_TIMEOUT: Seconds = 15.0
"""For this long after the start, a host that is not connected is no error."""


class Poller(PollingThread):
    """Polls one scheduler. `client_of` raises HostUnreachable while its host is not connected."""

    def __init__(
        self,
        watched: Watched,
        client_of: Callable[[], Client],
        submit: Callable[[Event], None],
        clock: Clock,
        on_poll: OnPoll = lambda jobs, me: None,
        unwatched_since: UnwatchedSince = lambda: float("inf"),
    ) -> None:
        """`on_poll` is called on the poller's thread with the listed jobs and our user name there. Accounting is asked
        for the jobs that ended after `unwatched_since`."""
        super().__init__(f"slurm {watched.cluster}", watched.every, submit, clock)
        self.watched = watched
        self._client_of = client_of
        self._queue = PolledQueue(watched, submit, clock, on_poll, unwatched_since)
        self._rate_limit = RateLimit(watched.every)
        self._client: Client | None = None
        self.failure: SlurmFailed | None = None
        """Why the last poll has failed."""
        self._job_polled_at: dict[str, Seconds] = {}
        self._silent_until = float("-inf")
        """Until then no details are requested: the last request had no answer."""
        self._phase: str | None = None
        """The phase of the source; None before the first poll has ended."""
        self._started: Seconds = clock.monotonic()
        self._has_answered = False
        self._refresh_nodes = False

    def start(self) -> None:
        """Begin; returns at once."""
        self._submit(ClustersChanged((self._queue.cluster,)))
        self._report("waiting")
        super().start()

    def poll_soon(self) -> None:
        """Poll more often for a while: an action or a loss changes the queue."""
        self._request(lambda: self._rate_limit.poll_often(self._clock.monotonic()))

    def refresh(self) -> None:
        """Poll everything now, at most every 5 s: a person requested it."""
        self._request(self._refresh)

    def poll_job(self, key: str) -> None:
        """Request what a person views: the details of a job by its key, at most every 5 s, or, by the name of the
        cluster, the jobs that ended in the last days, at most every five minutes."""
        self._request(partial(self._poll_job, key))

    def step(self) -> Seconds:
        self._do_requests()
        if self._rate_limit.due_in(self._clock.monotonic()) <= 0:
            self._poll()
        return self._rate_limit.due_in(self._clock.monotonic())

    def _refresh(self) -> None:
        self._refresh_nodes = True
        self._rate_limit.refresh(self._clock.monotonic())

    def _poll_job(self, key: str) -> None:
        now = self._clock.monotonic()
        is_list = key == self.watched.cluster
        if now < self._silent_until or self._phase not in (None, "up"):
            return  # it would wait for its time limit, and the next poll would wait for that
        recent = {name: at for name, at in self._job_polled_at.items() if now - at < ENDED_EVERY}
        if now - recent.get(key, float("-inf")) < (ENDED_EVERY if is_list else MIN_REFRESH):
            return
        self._job_polled_at = recent | {key: now}
        try:
            if is_list:
                self._queue.poll_ended(self._connected())
            else:
                self._queue.poll_job(self._connected(), key)
        except TrainmonError as error:  # the next poll reports it if it persists
            log.info("%s: %s", key, error)
            if isinstance(error, SlurmFailed) and error.kind == "silent":
                self._silent_until = self._clock.monotonic() + MIN_INTERVAL

    def _poll(self) -> None:
        """Poll the queue, then the rest, and plan the next poll."""
        self._rate_limit.begin(self._clock.monotonic())
        try:
            client = self._connected()
            took, changed = self._queue.poll(client)
            self._polled(took, changed=changed)
            self._queue.poll_rest(client, took, refresh_nodes=self._refresh_nodes)
            if self._queue.is_behind:
                self._rate_limit.poll_often(self._clock.monotonic())
        except SlurmFailed as failure:
            self._failed(failure)
        except HostUnreachable as error:
            now = self._clock.monotonic()
            self._rate_limit.unreached(now)
            is_early = not self._has_answered and now - self._started < CONNECT_TIMEOUT
            self._report("waiting", None if is_early else error)
        except Exception as error:  # a bug must not end the polls silently: it becomes the source's error
            log.exception("%s", self.watched.cluster)
            self._failed(SlurmFailed(f"{type(error).__name__}: {error}", kind="refused"))
        else:
            self._refresh_nodes = False

    def _polled(self, took: Seconds, *, changed: bool) -> None:
        """The queue is known: report that before its details, which take as long again."""
        now, self._has_answered, self.failure = self._clock.monotonic(), True, None
        if changed:
            self._rate_limit.poll_often(now)
        self._rate_limit.answered(now, took, has_jobs=self._queue.has_jobs)
        self._report("up")

    def _connected(self) -> Client:
        """The client of the current connection. It is kept, because it knows where the commands are."""
        client = self._client_of()
        if self._client is None or client.shell is not self._client.shell:
            self._client = client
        return self._client

    def _failed(self, failure: SlurmFailed) -> None:
        now, self.failure = self._clock.monotonic(), failure
        is_unconfigured = not self._has_answered and errors.is_without_configuration(failure.stderr)
        is_absent = failure.kind == "absent" or is_unconfigured
        if is_absent:
            self._client = None
            self._rate_limit.absent(now)
            if not (self.watched.required and self._has_answered):
                self._queue.no_slurm()
        else:
            self._rate_limit.failed(now)
        self._report("off" if is_absent and not self.watched.required else "retrying", failure)

    def _report(self, phase: Literal["waiting", "up", "retrying", "off"], error: TrainmonError | None = None) -> None:
        now = self._clock.now()
        source = Source(
            name=f"slurm:{self.watched.cluster}",
            kind="slurm",
            cluster=self.watched.cluster,
            answered_at=now if phase == "up" else None,
            period=self._rate_limit.interval,
            phase=phase,
            retry_at=now + self._rate_limit.interval if phase == "retrying" else None,
            error=error.message if error is not None else None,
            hint=(error.hint or None) if error is not None else None,
        )
        self._phase = phase
        is_absent = phase == "off" or (phase == "waiting" and error is not None)
        if not is_absent or self.watched.required or self._has_answered:
            self._submit_source(source)
        elif self._sources.pop(source.name, None) is not None:
            # Nobody counts on a scheduler, and there is none, or its host is not reached, which has a row of its own.
            self._submit(SourceRemoved(source.name))


# ---- the Slurm pollers of all clusters, each on the host where its commands run --------------------------------------

MakePoller = Callable[[Watched, Callable[[], Client], Callable[[Event], None], Clock, OnPoll, UnwatchedSince], Poller]


def clusters_of(settings: Settings, polled: Container[str]) -> tuple[Cluster, ...]:
    """The clusters of the config, before the first poll."""
    return tuple(
        Cluster(
            name=one.name,
            login=one.login or local_hostname(),
            spares=one.spares,
            users=one.users,
            has_slurm=None if one.name in polled else False,
        )
        for one in settings.clusters
    )


def polled_clusters(settings: Settings) -> Iterator[tuple[Watched, ClusterSettings]]:
    """The clusters whose Slurm is polled: on their login hosts; on this machine only the first one without a login."""
    has_local = False
    for cluster in settings.clusters:
        runs = [run for run in settings.runs if (run.cluster or settings.clusters[0].name) == cluster.name]
        by_step = cluster.connect.by == "srun"
        required = bool(cluster.nodes is None or cluster.users or cluster.spares or by_step) or any(
            run.job or run.user or run.script for run in runs
        )
        if cluster.login is None:
            if has_local or not (required or shutil.which("squeue")):
                continue
            has_local = True
        yield (
            Watched(
                cluster=cluster.name,
                login=cluster.login or local_hostname(),
                users=queue_users(settings, cluster),
                every=cluster.slurm_every,
                spares=cluster.spares,
                nodes=tuple(node.rpartition("@")[2] for node in cluster.nodes or ()),
                required=required,
            ),
            cluster,
        )
