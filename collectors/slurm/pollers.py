"""The Slurm pollers of all clusters, each on the host where its commands run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterator

from collectors.connections import local_hostname
from collectors.slurm.accounting import UnwatchedSince
from collectors.slurm.collector import Poller, Watched
from collectors.slurm.poll import OnPoll
from trainmon.config import ClusterSettings, Settings, queue_users
from trainmon.lib import Clock
from trainmon.model import Cluster, Event, JobsListed, SourceChanged, SourceRemoved
from trainmon.slurm.client import Client

Submit = Callable[[Event], None]
MakePoller = Callable[[Watched, Callable[[], Client], Submit, Clock, OnPoll, UnwatchedSince], Poller]


class HideAbsent:
    """Submits the events of a poller that the config does not need: its source is hidden until it has answered."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._has_answered = False

    def __call__(self, event: Event) -> None:
        self._has_answered = self._has_answered or isinstance(event, JobsListed)
        if isinstance(event, SourceChanged) and not self._has_answered:
            source = event.source
            # There is no scheduler, or its host is not reached, which has a row of its own.
            if source.phase == "off" or (source.phase == "waiting" and source.error is not None):
                event = SourceRemoved(source.name)
        self._submit(event)


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
