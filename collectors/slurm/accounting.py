"""Asks accounting for attempts that the queue no longer shows: those of requeued jobs, and those that ended before this
program started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import Cluster, Event, Job, JobsAccounted
from trainmon.slurm import commands, parse_jobs
from trainmon.slurm.client import Client

log = logging.getLogger(__name__)

RANGE: Seconds = 6 * 3_600.0
"""sacct times out over long periods on a busy slurmdbd, so it is asked for one part after another."""
RANGES_AT_ONCE = 4
"""Parts per poll."""
LONGEST: Seconds = 7 * 86_400.0
JOBS_AT_ONCE = 50
MAX_TRIES = 10
"""Accounting lags by seconds to minutes."""

UnwatchedSince = Callable[[], Instant | None]
"""Since when attempts may have been missed; None while that is not known itself, infinite if nothing was missed."""


class JobAccounting:
    """What accounting must still report about one cluster."""

    def __init__(self, submit: Callable[[Event], None], clock: Clock, since: UnwatchedSince) -> None:
        self._submit = submit
        self._clock = clock
        self._since = since
        self._begin: Instant | None = None
        """The start of the next part; None before the first one."""
        self._end: Instant = clock.now()
        """What ends later is seen in the queue."""
        self._due: dict[str, int] = {}
        """The numbers of jobs, and how often they were requested."""
        self._awaited: dict[str, Job] = {}
        """By number: the jobs, as the queue last showed them running, whose end is awaited."""

    @property
    def is_behind(self) -> bool:
        """Whether what ended while nobody watched is still to be requested."""
        begin = self._since() if self._begin is None else self._begin
        return begin is None or begin < self._end or MAX_TRIES - 1 in self._due.values()

    def await_end(self, running: Job) -> None:
        """Request the end of an attempt that the queue shows no longer, or not in full."""
        self._due[str(running.number)] = 0
        self._awaited[str(running.number)] = running

    def poll(self, client: Client, cluster: Cluster) -> None:
        """Request some of it.

        Raises:
            SlurmFailed: when accounting does not answer; the next poll tries again.
        """
        self._poll_ranges(client, cluster)
        numbers = list(self._due)[:JOBS_AT_ONCE]
        if not numbers:
            return
        tries = {number: self._due.pop(number) + 1 for number in numbers}
        self._due |= {number: count for number, count in tries.items() if count < MAX_TRIES}
        text = client.run(commands.accounting(numbers, commands.HISTORY))
        jobs = parse_jobs.read_accounting(text, cluster.name)
        ended = [self._named(job, client) for job in jobs if job.ends_at is not None and job.stage != "running"]
        for number in numbers:
            awaited = self._awaited.get(number)
            own = [job for job in ended if str(job.number) == number]
            if own if awaited is None else any(job.submitted_at == awaited.submitted_at for job in own):
                self._due.pop(number, None)
                self._awaited.pop(number, None)
        if ended:
            self._submit(JobsAccounted(cluster.name, tuple(ended)))

    def _named(self, job: Job, client: Client) -> Job:
        """The job with the name of who cancelled it, and its own: accounting learns that late."""
        running, by = self._awaited.get(str(job.number)), job.cancelled_by
        name = job.name if running is None else running.name
        return replace(job, name=name, cancelled_by=client.user_name(by) if by is not None and by.isdigit() else by)

    def _poll_ranges(self, client: Client, cluster: Cluster) -> None:
        if self._begin is None:
            since = self._since()
            if since is None:
                return
            self._begin = max(since, self._end - LONGEST)
        for _ in range(RANGES_AT_ONCE):
            if self._begin >= self._end:
                return
            end = min(self._begin + RANGE, self._end)
            argv = commands.jobs_between(_time(self._begin), _time(end + 1), cluster.queue_users)
            for number in parse_jobs.read_numbers(client.run(argv)):
                self._due.setdefault(number, MAX_TRIES - 1)
            self._begin = end


def _time(at: Instant) -> str:
    """As sacct reads it; the client sets the time zone to UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
