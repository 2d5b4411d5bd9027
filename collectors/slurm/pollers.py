"""The queues of all clusters that have a scheduler: one poller each, on the host where its commands run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from collectors.connections import local_hostname
from collectors.slurm.collector import Poller, Watched
from trainmon.config import ClusterSettings, Settings, queue_users
from trainmon.lib import Clock
from trainmon.model import Event, Job, JobsListed, Source, SourceChanged, SourceRemoved
from trainmon.slurm.client import Client
from trainmon.transport.shell import Shell

Submit = Callable[[Event], None]
Seen = Callable[[str, tuple[Job, ...], str], None]


class Queue(Protocol):
    """One cluster's poller. No method blocks for long."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def hurry(self) -> None: ...

    def refresh(self) -> None: ...

    def look_at(self, key: str) -> None: ...


MakeQueue = Callable[[Watched, Callable[[], Client], Submit, Clock, Callable[[tuple[Job, ...], str], None]], Queue]


class SlurmPollers:
    """All of them, by cluster. `seen` is told of every look: the cluster, its jobs, who we are there."""

    def __init__(
        self,
        settings: Settings,
        shell_of: Callable[[ClusterSettings], Shell],
        submit: Submit,
        clock: Clock,
        seen: Seen,
        make: MakeQueue = Poller,
    ) -> None:
        self._queues: dict[str, Queue] = {}
        for watched, cluster in with_a_queue(settings):
            tell = submit if watched.required else IfThere(submit)
            self._queues[cluster.name] = make(
                watched, partial(_client, shell_of, cluster), tell, clock, partial(seen, cluster.name)
            )

    def start(self) -> None:
        for queue in self._queues.values():
            queue.start()

    def stop(self) -> None:
        for queue in self._queues.values():
            queue.stop()

    def refresh(self) -> None:
        """A person asks."""
        for queue in self._queues.values():
            queue.refresh()

    def hurry(self, cluster: str) -> None:
        """Something has happened there."""
        if cluster in self._queues:
            self._queues[cluster].hurry()

    def look_at(self, key: str) -> None:
        """A person looks at a job: `prod/88_3`."""
        cluster = key.partition("/")[0]
        if cluster in self._queues:
            self._queues[cluster].look_at(key)


class IfThere:
    """Where the config says nothing of Slurm: a cluster has no such source until one has answered."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._has_answered = False

    def __call__(self, event: Event) -> None:
        self._has_answered = self._has_answered or isinstance(event, JobsListed)
        if isinstance(event, SourceChanged) and not self._has_answered and _is_nothing(event.source):
            event = SourceRemoved(event.source.name)
        self._submit(event)


def _is_nothing(source: Source) -> bool:
    """Whether there is no scheduler, or nobody can tell because its host is not reached, which has its own row."""
    return source.phase == "off" or (source.phase == "waiting" and source.error is not None)


def with_a_queue(settings: Settings) -> Iterator[tuple[Watched, ClusterSettings]]:
    """The clusters whose Slurm is asked: on their login hosts; on this machine that of the first without one."""
    has_asked_here = False
    for cluster in settings.clusters:
        required = is_required(settings, cluster)
        if cluster.login is None:
            if has_asked_here or not (required or shutil.which("squeue")):
                continue
            has_asked_here = True
        watched = Watched(
            cluster=cluster.name,
            login=cluster.login or local_hostname(),
            users=queue_users(settings, cluster),
            every=cluster.slurm_every,
            spares=cluster.spares,
            nodes=tuple(node.rpartition("@")[2] for node in cluster.nodes or ()),
            required=required,
        )
        yield watched, cluster


def is_required(settings: Settings, cluster: ClusterSettings) -> bool:
    """Whether the config counts on a Slurm there."""
    runs = [run for run in settings.runs if (run.cluster or settings.clusters[0].name) == cluster.name]
    told = cluster.nodes is None or cluster.users or cluster.spares
    return bool(told) or any(run.job or run.user or run.script for run in runs)


def _client(shell_of: Callable[[ClusterSettings], Shell], cluster: ClusterSettings) -> Client:
    """Its commands, over the live connection. Raises HostUnreachable while there is none."""
    return Client(shell_of(cluster))
