"""One poll of a scheduler: the queue, details of changed jobs, the ends of vanished jobs, the nodes, and accounting.

Slurm's manual asks programs not to call it in loops, sites forbid `watch squeue`, and a busy controller limits its
callers. Fewer requests get more answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from collectors.polling_thread import PollTimes
from trainmon.lib import Clock, Instant, Seconds, TrainmonError
from trainmon.model import (
    Cluster,
    ClustersChanged,
    EndedJobs,
    Event,
    Job,
    JobChanged,
    JobsAccounted,
    JobsListed,
    SchedulerNodesListed,
)
from trainmon.slurm import commands, errors, parse
from trainmon.slurm.client import Client, SlurmFailed

# ---- asks accounting for attempts that the queue no longer shows -----------------------------------------------------

RANGE: Seconds = 6 * 3_600.0
"""sacct times out over long periods on a busy slurmdbd, so it is asked for one part after another."""
RANGES_AT_ONCE = 4
"""Parts per poll."""
LONGEST: Seconds = 7 * 86_400.0
JOBS_AT_ONCE = 50
MAX_TRIES = 10
"""Requests for the end of one job: accounting lags by seconds to minutes, and may be down for a while."""

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
        jobs = parse.read_accounting(client.run(commands.accounting(numbers, commands.HISTORY)), cluster.name)
        ended = [self.named(job, client) for job in jobs if job.ends_at is not None and job.stage != "running"]
        for number in numbers:
            awaited = self._awaited.get(number)
            own = [job for job in ended if str(job.number) == number]
            if own if awaited is None else any(job.submitted_at == awaited.submitted_at for job in own):
                self._due.pop(number, None)
                self._awaited.pop(number, None)
        if ended:
            self._submit(JobsAccounted(cluster.name, tuple(ended)))

    def named(self, job: Job, client: Client) -> Job:
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
            argv = commands.jobs_between(self._begin, end + 1, cluster.queue_users)
            for number in filter(str.isdecimal, client.run(argv).split()):
                self._due.setdefault(number, MAX_TRIES - 1)
            self._begin = end


# ---- one poll of a scheduler -----------------------------------------------------------------------------------------

# ---- how often a scheduler is polled ---------------------------------------------------------------------------------

MIN_INTERVAL: Seconds = 15.0
"""Between two polls while jobs change."""
FREQUENT_FOR: Seconds = 60.0
"""How long polls are frequent after an action or a job's change of state."""
IDLE_INTERVAL: Seconds = 300.0
"""Between two polls while there are no jobs, and have been none for a while."""
IDLE_AFTER: Seconds = 3_600.0
"""Whose job has died submits another soon: its attempts are short, and each is to be seen."""
MAX_INTERVAL: Seconds = 600.0
SLOW_ANSWER: Seconds = 3.0
"""A controller that needs longer for an answer is busy."""
RETRY_UNREACHED: Seconds = 2.0
"""Until the host's connection is checked again, which sends no request."""


class RateLimit(PollTimes):
    """When the next poll is due."""

    def __init__(self, every: Seconds) -> None:
        super().__init__(max(MIN_INTERVAL, every))
        self._frequent_until = self._had_jobs_at = float("-inf")
        self._factor = 1

    def answered(self, now: Seconds, took: Seconds, *, has_jobs: bool) -> None:
        """The poll has succeeded; `took` is the time that the controller needed."""
        self._factor = self._factor * 2 if took > SLOW_ANSWER else 1
        self._had_jobs_at = now if has_jobs else self._had_jobs_at
        self._next(now, max(IDLE_INTERVAL, self._every) if now - self._had_jobs_at >= IDLE_AFTER else self._every)

    def failed(self, now: Seconds) -> None:
        """The poll has failed."""
        self._factor *= 2
        self._next(now, self._every)

    def absent(self, now: Seconds) -> None:
        """There is no scheduler."""
        self._factor, self.interval = 1, MAX_INTERVAL
        self._due = now + MAX_INTERVAL

    def unreached(self, now: Seconds) -> None:
        """The host is not connected: no request was sent."""
        self._due = now + RETRY_UNREACHED

    def poll_often(self, now: Seconds) -> None:
        """An action was run, or a job has changed."""
        self._frequent_until = now + FREQUENT_FOR
        self._due = min(self._due, max(now, self._began + MIN_INTERVAL))

    def _next(self, now: Seconds, interval: Seconds) -> None:
        if now < self._frequent_until:
            interval = MIN_INTERVAL
        self._factor = min(self._factor, int(MAX_INTERVAL))
        self.interval = min(max(MAX_INTERVAL, interval), interval * self._factor)
        self._due = now + self.interval


# ---- one poll of a scheduler -----------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

MAX_DETAILS = 100
"""Our own jobs whose details one poll requests, from one process. Slurm 22.05 answers 20 of them in 60 ms."""
MAX_OTHERS = 20
"""The same for jobs of other users: a first poll must not be a burst. The next polls request the rest."""
DETAILS_TIME: Seconds = 20.0
"""One process requests as many details as the controller answers in this time, if it needs as long as for the queue."""
NODES_EVERY: Seconds = 60.0
"""Between two polls of the same nodes: their states change rarely."""

ENDED_PARTS: tuple[Seconds, ...] = (0.0, 6 * 3_600.0, 24 * 3_600.0, 72 * 3_600.0)
"""The ends of the periods, before now, in which jobs that have ended are requested."""
ENDED_AT_MOST = 500
"""The newest of them. If there are as many, no earlier period is requested."""

OnPoll = Callable[[tuple[Job, ...], str], None]


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What is read from one cluster's scheduler."""

    cluster: str
    login: str
    """The host where its commands run."""
    users: tuple[str, ...] = ()
    every: Seconds = 30.0
    spares: int = 0
    nodes: tuple[str, ...] = ()
    """Nodes of the config: the scheduler's view of them is read whether or not jobs run there."""
    required: bool = False
    """Whether the config needs Slurm; otherwise a host without it is no fault."""


class PolledQueue:
    """The last observed state of one cluster's queue, and what must still be requested."""

    def __init__(
        self,
        watched: Watched,
        submit: Callable[[Event], None],
        clock: Clock,
        on_poll: OnPoll,
        unwatched_since: UnwatchedSince,
    ) -> None:
        self._watched = watched
        self._submit = submit
        self._clock = clock
        self._on_poll = on_poll
        self.cluster = Cluster(name=watched.cluster, login=watched.login, spares=watched.spares, users=watched.users)
        self._accounting = JobAccounting(submit, clock, unwatched_since)
        self._has_polled = False
        self._is_configured = False
        """Whether the cluster's configuration was read."""
        self._jobs: dict[str, Job] = {}
        self._detailed: dict[str, tuple[object, ...]] = {}
        """The version of each job whose details were requested."""
        self._details_at_once = MAX_DETAILS
        self._vanished: dict[str, tuple[Job, int]] = {}
        """Jobs whose end accounting must report, and how often it was requested."""
        self._requeued: dict[str, Job] = {}
        """Jobs that wait after a requeue, as they ran before: one of their nodes may have failed."""
        self._ended = EndedJobs(watched.cluster, 0.0)
        self._polled_nodes: tuple[object, ...] | None = None
        self._nodes_at = float("-inf")

    @property
    def has_jobs(self) -> bool:
        return any(job.stage != "ended" for job in self._jobs.values())

    @property
    def is_behind(self) -> bool:
        """Whether accounting must still be asked for what ended while nobody watched."""
        return self.cluster.accounting is True and self._accounting.is_behind

    def poll(self, client: Client) -> tuple[Seconds, bool]:
        """Poll the queue. Returns the controller's time for it, and whether a job has changed.

        Raises:
            SlurmFailed: when the queue is not known.
        """
        if self.cluster.me is None:
            self._update_cluster(me=client.me())
        began = self._clock.monotonic()
        text = client.run(commands.queue(self.cluster.queue_users))
        took = self._clock.monotonic() - began
        jobs = parse.read_queue(text, self._watched.cluster)
        if not jobs and text.strip():
            raise SlurmFailed(f"squeue on {client.shell.host} printed an unknown format", kind="refused")
        if not self.cluster.has_slurm:
            self._update_cluster(has_slurm=True)
        return took, self._update(jobs, self._clock.now())

    def poll_rest(self, client: Client, took: Seconds, *, refresh_nodes: bool) -> None:
        """Poll what the queue does not show: details, nodes and ends. `took` is the controller's time for the queue. A
        failure is tried again in the next poll.
        """
        for request in (
            lambda client: self._poll_details(client, took),
            lambda client: self._poll_nodes(client, refresh=refresh_nodes),  # before the ends that they explain
            self._poll_accounting,
            self._poll_configuration,
            self._poll_attempts,
        ):
            try:
                request(client)
            except SlurmFailed as failure:
                log.info("%s: %s", self._watched.cluster, failure)
                if failure.kind == "silent":
                    break
        if not self.cluster.is_polled:
            self._update_cluster(is_polled=True)

    def no_slurm(self) -> None:
        """There is no Slurm."""
        if self.cluster.has_slurm is not False:
            self._update_cluster(has_slurm=False)

    def poll_ended(self, client: Client) -> None:
        """Request the jobs that ended in the last days: a person views them. The newest come first, and older ones only
        while there are few: sacct has no limit of rows, and times out over long periods on a busy slurmdbd."""
        now, found, jobs, error = self._clock.now(), dict[str, Job](), tuple[Job, ...](), None
        users = self.cluster.queue_users or (self.cluster.me or "",)
        try:
            for end, start in pairwise(ENDED_PARTS if self.cluster.accounting is not False else ()):
                if len(found) < ENDED_AT_MOST:
                    text = client.run(commands.ended_jobs(now - start, now - end, users))
                    found |= {job.key: job for job in parse.read_accounting(text, self._watched.cluster)}
            newest = sorted(found.values(), key=lambda job: -(job.ends_at or 0.0))[:ENDED_AT_MOST]
            jobs = tuple(self._accounting.named(job, client) for job in newest)
        except SlurmFailed as failure:
            error = str(failure)
            if errors.is_without_accounting(failure.stderr):
                self._update_cluster(accounting=False)
        if self.cluster.accounting is False:
            error = (
                f"{self._watched.cluster} keeps no accounts (no slurmdbd): its Slurm soon forgets a job that has ended"
            )
        if error is None:
            self._ended = EndedJobs(self._watched.cluster, now, jobs)
        self._submit(replace(self._ended, error=error))

    def poll_job(self, client: Client, key: str) -> None:
        """Request the details of a job now: a person views it."""
        job = self._jobs.get(key)
        if job is not None:
            self._request_details(client, [job])

    # ---- the queue --------------------------------------------------------------------------------------------------

    def _update(self, jobs: tuple[Job, ...], at: Instant) -> bool:
        before, now = self._jobs, {job.key: job for job in jobs}
        for key, job in before.items():
            if key not in now and not job.is_waiting_array and self.cluster.accounting is not False:
                self._vanished[key] = (replace(job, gone_at=at), 0)
        for key, job in now.items():
            self._vanished.pop(key, None)
            old = before.get(key)
            is_requeued = old is not None and (old.submitted_at, old.started_at) != (job.submitted_at, job.started_at)
            is_cancelled = old is not None and old.stage == "running" and job.state == "CANCELLED"
            if old is not None and (is_cancelled or (is_requeued and old.stage != "waiting")):
                self._requeued |= {key: old} if is_requeued else {}
                self._accounting.await_end(old)  # the queue does not show how it ended, or who cancelled it
            if old is not None and old.detail_at is not None and old.submitted_at == job.submitted_at:
                now[key] = replace(parse.detailed(job, old), detail_at=old.detail_at, cancelled_by=old.cancelled_by)
        self._detailed = {key: version for key, version in self._detailed.items() if key in now}
        waiting = {key for key, job in now.items() if job.stage == "waiting"}
        self._requeued = {key: job for key, job in self._requeued.items() if key in waiting}
        changed = self._has_polled and _has_changed(before, now)
        self._has_polled = True
        self._jobs = now
        self._submit(JobsListed(self._watched.cluster, at, jobs))  # without details: the State keeps its own
        self._report_jobs()
        return changed

    def _report_jobs(self) -> None:
        self._on_poll(tuple(self._jobs.values()), self.cluster.me or "")

    # ---- details ----------------------------------------------------------------------------------------------------

    def _poll_details(self, client: Client, took: Seconds) -> None:
        """Request details of jobs that are new or have another state or start: only details have the restarts."""
        stages = ("running", "waiting", "unknown", "ended")
        due = [job for job in self._jobs.values() if self._detailed.get(job.key) != _version(job)]
        due.sort(key=lambda job: (stages.index(job.stage), -job.number))
        own = [job for job in due if job.user == self.cluster.me]
        others = [job for job in due if job.user != self.cluster.me]
        if not due:
            self._details_at_once = MAX_DETAILS
        in_time = MAX_DETAILS if took <= 0 else max(1, int(DETAILS_TIME / took))
        most = min(self._details_at_once, in_time)
        # Apart from each other: a job's name may have lines that look like the details of another job.
        for jobs in (own[:most], others[: max(0, min(MAX_OTHERS, most - len(own)))]):
            try:
                self._request_details(client, jobs)
            except SlurmFailed:
                self._details_at_once = max(1, len(jobs) // 4)
                raise

    def _request_details(self, client: Client, jobs: Sequence[Job]) -> None:
        """Request the details of some jobs from one process."""
        text = client.show_jobs([str(job.number) for job in jobs]) if jobs else ""
        records = {record.number: record for record in parse.read_job(text, self._watched.cluster)}
        for job in jobs:
            self._detailed[job.key] = _version(job)
            shown = parse.detailed(job, records.get(job.number, job))
            if job.number in records and shown is not job:  # else its number is of another job, or attempt, by now
                self._jobs[job.key] = replace(shown, detail_at=self._clock.now())
                self._submit(JobChanged(self._jobs[job.key]))
        if records:
            self._report_jobs()

    # ---- accounting -------------------------------------------------------------------------------------------------

    def _poll_accounting(self, client: Client) -> None:
        """Request how the jobs ended that have left the queue."""
        if self.cluster.accounting is False:
            self._vanished.clear()
        if not self._vanished:
            return
        due = dict(list(self._vanished.items())[:JOBS_AT_ONCE])
        self._vanished |= {key: (job, tries + 1) for key, (job, tries) in due.items()}
        attempts: Iterable[Job] = ()
        try:
            text = client.run(commands.accounting([job.id for job, _ in due.values()]))
            attempts = parse.read_accounting(text, self._watched.cluster)
        except SlurmFailed as failure:
            if errors.is_without_accounting(failure.stderr) or failure.kind == "absent":
                self._update_cluster(accounting=False)
                self._vanished.clear()
        for key, (job, tries) in due.items():
            own = [attempt for attempt in attempts if attempt.number == job.number or attempt.id == job.id]
            has_ended = bool(own) and own[-1].stage == "ended"
            if has_ended:
                last = self._accounting.named(own[-1], client)
                ended = replace(
                    job,
                    state=last.state,
                    started_at=last.started_at or job.started_at,
                    ends_at=last.ends_at,
                    exit_code=last.exit_code,
                    cancelled_by=last.cancelled_by,
                    nodes=job.nodes or last.nodes,
                )
                self._submit(JobChanged(ended))
            if has_ended or tries + 1 >= MAX_TRIES:
                self._vanished.pop(key, None)

    def _poll_attempts(self, client: Client) -> None:
        """Request the attempts that the queue no longer shows."""
        if self.cluster.accounting:
            self._accounting.poll(client, self.cluster)

    # ---- nodes and configuration ------------------------------------------------------------------------------------

    def _poll_nodes(self, client: Client, *, refresh: bool) -> None:
        """Poll the nodes of running and requeued jobs, of jobs whose node failed, and of the config. If spares are
        wanted, poll all nodes of the jobs' partitions in one request: the controller always sends sinfo its whole
        table, and sinfo filters it."""
        jobs = [job for job in self._jobs.values() if job.stage != "ended" or job.state == "NODE_FAIL"]
        names: Sequence[str] | None = None
        partitions: tuple[str, ...] = ()
        if self._watched.spares:
            partitions = tuple(sorted({name for job in jobs for name in (job.partition or "").split(",") if name}))
        else:
            begun = [job for job in jobs if job.stage in ("running", "ended")]
            nodes_of_jobs = (node for job in (*begun, *self._requeued.values()) for node in job.nodes)
            names = sorted({*self._watched.nodes, *nodes_of_jobs})
            if not names:
                return
        left = [job.key for job in jobs if job.stage == "ended" or job.key in self._requeued]
        now, version = self._clock.monotonic(), (names, partitions, left)
        if version == self._polled_nodes and not refresh and now - self._nodes_at < NODES_EVERY:
            return
        text = client.run(commands.nodes(names, partitions))
        self._polled_nodes, self._nodes_at = version, now
        nodes = parse.read_nodes(text, self._watched.cluster)
        self._submit(SchedulerNodesListed(self._watched.cluster, self._clock.now(), nodes))

    def _poll_configuration(self, client: Client) -> None:
        """Read once what this cluster is, and what we may do there."""
        if self._is_configured:
            return
        found = parse.read_configuration(client.run(commands.configuration()))
        me = self.cluster.me or ""
        may = True if me in ("root", found.administrator) else found.accounting  # without accounting: no operators
        if found.accounting and me not in ("root", found.administrator):
            try:
                may = client.run(commands.may_operate(me)).strip() in ("Operator", "Administrator")
            except TrainmonError:
                may = None
        accounting = self.cluster.accounting if found.accounting is None else found.accounting
        self._is_configured = True
        self._update_cluster(slurm=found.version, accounting=accounting, may_operate=may)

    def _update_cluster(self, **changes: str | bool | None) -> None:
        self.cluster = replace(self.cluster, **changes)
        self._submit(ClustersChanged((self.cluster,)))


def _version(job: Job) -> tuple[object, ...]:
    """A job's details are requested again when this changes."""
    return (job.state, job.submitted_at, job.started_at)


def _has_changed(before: Mapping[str, Job], now: Mapping[str, Job]) -> bool:
    """Whether a job has come, gone or changed its state. It does not count that Slurm has forgotten an ended job."""
    alive = [job for job in before.values() if job.stage != "ended"]
    return bool(now.keys() - before.keys()) or any(
        job.key not in now or now[job.key].state != job.state for job in alive
    )
