"""One look at a scheduler: the queue, the details of what changed, what became of what vanished, the nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from trainmon.lib import Clock, Instant, Seconds, TrainmonError
from trainmon.model import Cluster, ClustersChanged, Event, Job, JobChanged, JobsListed, SchedulerNodesListed
from trainmon.slurm import commands, errors, parse_jobs
from trainmon.slurm.client import Client, SlurmFailed

log = logging.getLogger(__name__)

DETAILS_AT_ONCE = 20
"""Questions for details in one look: a first look at 200 jobs must not be a storm. The rest follows in the next."""
DETAILS_FOR: Seconds = 10.0
"""And no longer than this: a controller that is slow has enough to do."""
NODES_EVERY: Seconds = 60.0
"""Between two looks at nodes that are the same: their states change rarely."""
ASKED_TIMES = 10
"""How often accounting is asked for one job: it lags by seconds to minutes, and may be down for a while."""
ACCOUNTED_AT_ONCE = 50

Seen = Callable[[tuple[Job, ...], str], None]


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of one cluster's scheduler."""

    cluster: str
    login: str
    """The host where its commands run."""
    users: tuple[str, ...] = ()
    every: Seconds = 30.0
    spares: int = 0
    nodes: tuple[str, ...] = ()
    """Nodes of the config: what the scheduler says of them is of interest whatever runs there."""
    required: bool = False
    """Whether the config needs Slurm; otherwise a host without it is no fault."""


class PolledQueue:
    """What was last seen of one cluster's queue, and what is still to be asked."""

    def __init__(self, watched: Watched, submit: Callable[[Event], None], clock: Clock, seen: Seen) -> None:
        self._watched = watched
        self._submit = submit
        self._clock = clock
        self._seen = seen
        self.cluster = Cluster(name=watched.cluster, login=watched.login, spares=watched.spares, users=watched.users)
        self._has_looked = False
        self._is_known = False
        """Whether its configuration has been read."""
        self._jobs: dict[str, Job] = {}
        self._asked: dict[str, tuple[object, ...]] = {}
        """What a job was like when its details were asked."""
        self._vanished: dict[str, tuple[Job, int]] = {}
        """Jobs that accounting is to tell of, and how often it was asked."""
        self._nodes_asked: tuple[Sequence[str] | None, tuple[str, ...]] | None = None
        self._nodes_at = float("-inf")

    @property
    def has_jobs(self) -> bool:
        return any(job.stage != "ended" for job in self._jobs.values())

    def look(self, client: Client, *, thoroughly: bool) -> tuple[Seconds, bool]:
        """Look at all of it. Returns how long the controller needed, and whether a job has changed. Raises
        SlurmFailed where the queue is not known; what else fails is asked again at the next look."""
        if self.cluster.me is None:
            self._tell(replace(self.cluster, me=client.me()))
        began = self._clock.monotonic()
        text = client.run(commands.queue(self.cluster.queue_users))
        took = self._clock.monotonic() - began
        jobs = parse_jobs.read_queue(text, self._watched.cluster)
        if not jobs and text.strip():
            raise SlurmFailed(f"squeue on {client.shell.host} printed an unknown format", kind="refused")
        changed = self._take(jobs, self._clock.now())
        self._and_then(client, thoroughly=thoroughly)
        return took, changed

    def look_at(self, client: Client, key: str) -> None:
        """A person looks at a job: ask for its details now."""
        job = self._jobs.get(key)
        if job is not None and self._ask(client, job):
            self._tell_seen()

    # ---- the queue --------------------------------------------------------------------------------------------------

    def _take(self, jobs: tuple[Job, ...], at: Instant) -> bool:
        before, now = self._jobs, {job.key: job for job in jobs}
        for key, job in before.items():
            if key not in now and not job.is_waiting_array and self.cluster.accounting is not False:
                self._vanished[key] = (replace(job, gone_at=at), 0)
        for key, job in now.items():
            self._vanished.pop(key, None)
            old = before.get(key)
            if old is not None and old.detail_at is not None and old.submitted_at == job.submitted_at:
                now[key] = replace(
                    parse_jobs.detailed(job, old), detail_at=old.detail_at, cancelled_by=old.cancelled_by
                )
        self._asked = {key: asked for key, asked in self._asked.items() if key in now}
        changed = self._has_looked and _is_news(before, now)
        self._has_looked = True
        self._jobs = now
        self._submit(
            JobsListed(self._watched.cluster, at, jobs)
        )  # the State keeps what it knows beside: others tell it too
        self._tell_seen()
        return changed

    def _tell_seen(self) -> None:
        self._seen(tuple(self._jobs.values()), self.cluster.me or "")

    def _and_then(self, client: Client, *, thoroughly: bool) -> None:
        """Everything else. The queue is told already: what fails here is tried again at the next look."""
        for ask in (self._ask_details, self._ask_accounting, self._ask_configuration):
            try:
                ask(client)
            except SlurmFailed as failure:
                log.info("%s: %s", self._watched.cluster, failure)
                if failure.kind == "silent":
                    return
        try:
            self._ask_nodes(client, thoroughly=thoroughly)
        except SlurmFailed as failure:
            log.info("%s: %s", self._watched.cluster, failure)

    # ---- details ----------------------------------------------------------------------------------------------------

    def _ask_details(self, client: Client) -> None:
        """Of jobs that are new, or have changed their state or start: only there are restarts counted."""
        due = [job for job in self._jobs.values() if self._asked.get(job.key) != _likeness(job)]
        due.sort(key=self._urgency)
        until, found = self._clock.monotonic() + DETAILS_FOR, False
        for job in due[:DETAILS_AT_ONCE]:
            if self._clock.monotonic() > until:
                break
            found = self._ask(client, job) or found
        if found:
            self._tell_seen()

    def _ask(self, client: Client, job: Job) -> bool:
        try:
            text = client.run(commands.show_job(str(job.number)))
        except SlurmFailed as failure:
            if failure.kind == "silent":
                raise
            self._asked[job.key] = _likeness(job)  # it has just gone, or is not ours to see
            return False
        self._asked[job.key] = _likeness(job)
        records = parse_jobs.read_job(text, self._watched.cluster)
        detail = next((record for record in records if record.number == job.number), None)
        if detail is None:
            return False
        job = replace(parse_jobs.detailed(job, detail), detail_at=self._clock.now())
        self._jobs[job.key] = job
        self._submit(JobChanged(job))
        return True

    def _urgency(self, job: Job) -> tuple[bool, int, int]:
        stages = ("running", "waiting", "unknown", "ended")
        return (job.user != self.cluster.me, stages.index(job.stage), -job.number)

    # ---- accounting -------------------------------------------------------------------------------------------------

    def _ask_accounting(self, client: Client) -> None:
        """How the jobs ended that the queue no longer lists."""
        if self.cluster.accounting is False:
            self._vanished.clear()
        if not self._vanished:
            return
        asked = dict(list(self._vanished.items())[:ACCOUNTED_AT_ONCE])
        for key, (job, times) in asked.items():
            self._vanished[key] = (job, times + 1)
        try:
            text = client.run(commands.accounting([job.id for job, _ in asked.values()]))
        except SlurmFailed as failure:
            if errors.is_without_accounting(failure.stderr) or failure.kind == "absent":
                self._tell(replace(self.cluster, accounting=False))
                self._vanished.clear()
            else:
                self._give_up(asked)
            return
        attempts = parse_jobs.read_accounting(text, self._watched.cluster)
        for key, (job, _) in asked.items():
            own = [attempt for attempt in attempts if attempt.number == job.number or attempt.id == job.id]
            if own and own[-1].stage == "ended":
                del self._vanished[key]
                self._submit(JobChanged(self._ended(client, job, own[-1])))
        self._give_up(asked)

    def _give_up(self, keys: Iterable[str]) -> None:
        for key in keys:
            if self._vanished.get(key, (None, 0))[1] >= ASKED_TIMES:
                del self._vanished[key]

    @staticmethod
    def _ended(client: Client, job: Job, attempt: Job) -> Job:
        by = attempt.cancelled_by
        return replace(
            job,
            state=attempt.state,
            started_at=attempt.started_at or job.started_at,
            ends_at=attempt.ends_at,
            exit_code=attempt.exit_code,
            cancelled_by=client.user_name(by) if by is not None and by.isdigit() else by,
            nodes=job.nodes or attempt.nodes,
        )

    # ---- nodes and the rest -----------------------------------------------------------------------------------------

    def _ask_nodes(self, client: Client, *, thoroughly: bool) -> None:
        names, partitions = self._wanted_nodes()
        if names is not None and not names:
            return
        now = self._clock.monotonic()
        same = (names, partitions) == self._nodes_asked
        if same and not thoroughly and now - self._nodes_at < NODES_EVERY:
            return
        text = client.run(commands.nodes(names, partitions))
        self._nodes_asked, self._nodes_at = (names, partitions), now
        nodes = parse_jobs.read_nodes(text, self._watched.cluster)
        self._submit(SchedulerNodesListed(self._watched.cluster, self._clock.now(), nodes))

    def _wanted_nodes(self) -> tuple[Sequence[str] | None, tuple[str, ...]]:
        """The nodes of the jobs that run and those of the config. Where spares are wanted, all nodes of the jobs'
        partitions in one question: the controller sends sinfo its whole table in any case, and sinfo chooses."""
        jobs = [job for job in self._jobs.values() if job.stage != "ended"]
        if self._watched.spares:
            names = (name for job in jobs for name in (job.partition or "").split(",") if name)
            return None, tuple(sorted(set(names)))
        running = (node for job in jobs if job.stage == "running" for node in job.nodes)
        return sorted({*self._watched.nodes, *running}), ()

    def _ask_configuration(self, client: Client) -> None:
        """Once: what this cluster is, and what we may do there."""
        if self._is_known:
            return
        found = parse_jobs.read_configuration(client.run(commands.configuration()))
        me = self.cluster.me or ""
        may = True if me in ("root", found.administrator) else self._rank(client, me, accounting=found.accounting)
        accounting = self.cluster.accounting if found.accounting is None else found.accounting
        self._is_known = True
        self._tell(replace(self.cluster, slurm=found.version, accounting=accounting, may_operate=may))

    @staticmethod
    def _rank(client: Client, me: str, *, accounting: bool | None) -> bool | None:
        """Whether accounting calls us an operator or administrator; without accounting nobody can be one."""
        if not accounting:
            return None if accounting is None else False
        try:
            return client.run(commands.may_operate(me)).strip() in ("Operator", "Administrator")
        except TrainmonError:
            return None

    def _tell(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._submit(ClustersChanged((cluster,)))


def _likeness(job: Job) -> tuple[object, ...]:
    """What a job's details hang on."""
    return (job.state, job.submitted_at, job.started_at)


def _is_news(before: Mapping[str, Job], now: Mapping[str, Job]) -> bool:
    """Whether a job has come, gone or changed its state; that one which had ended is forgotten is none."""
    if now.keys() - before.keys():
        return True
    lived = {key: job for key, job in before.items() if job.stage != "ended"}
    return any(key not in now or now[key].state != job.state for key, job in lived.items())
