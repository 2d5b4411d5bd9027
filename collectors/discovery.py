"""What to watch: the runs of the settings and of the queues, their nodes, and one WatchPlan for each cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from collectors.assignment import WatchPlan
from collectors.connections import local_hostname
from trainmon.analysis.log_formats import FORMATS, keep
from trainmon.analysis.runs import ENDED_RUNS_STAY, holds_nodes, jobs_of, owner_of, watched_runs
from trainmon.config import ClusterSettings, Settings, log_formats, run_specs
from trainmon.lib import Instant, Seconds
from trainmon.model import Job, RunSpec

NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

MAX_GONE = 5_000
"""Jobs of one cluster that are kept after they left the queue."""

MAX_NODES = 2_000
"""Nodes of one cluster that are watched; each needs a connection."""


class RunDiscovery:
    """The runs of all clusters, derived from their jobs."""

    def __init__(self, settings: Settings) -> None:
        self._configured = run_specs(settings)
        self.runs: tuple[RunSpec, ...] = self._configured
        self._names = {
            cluster.name: {host.rpartition("@")[2]: host for host in cluster.nodes or () if "@" in host}
            for cluster in settings.clusters
        }
        """By Slurm's node name: the host's name in the config, such as me@gpu-001."""
        self._users = {cluster.name: cluster.users for cluster in settings.clusters}
        self._jobs: dict[str, tuple[Job, ...]] = {}
        self._me: dict[str, str | None] = {}
        self._ours: dict[str, frozenset[str]] = {}

    def update(self, cluster: str, jobs: Sequence[Job], me: str | None, now: Instant) -> bool:
        """Store a poll of a cluster's queue. Returns whether the runs have changed."""
        names = self._names.get(cluster, {})
        # The nodes become arguments of ssh, so invalid host names are left out.
        listed = [
            replace(job, nodes=tuple(names.get(node, node) for node in job.nodes if NODE.fullmatch(node)))
            for job in jobs
        ]
        self._jobs[cluster] = with_ended_jobs(self._jobs.get(cluster, ()), listed, now)
        self._me[cluster] = me
        self._ours[cluster] = frozenset(
            node for job in listed if me is not None and job.user == me and holds_nodes(job) for node in job.nodes
        )
        everyone = [job for jobs in self._jobs.values() for job in jobs]
        configured = tuple(
            replace(spec, user=owner_of(spec, self._users.get(spec.cluster, ()), self._me.get(spec.cluster)))
            for spec in self._configured
        )
        runs = watched_runs(configured, self.runs, everyone, self._me, now)
        has_changed, self.runs = runs != self.runs, runs
        return has_changed

    def nodes(self, cluster: str) -> tuple[str, ...]:
        """The nodes of the jobs of a cluster's runs."""
        jobs = self._jobs.get(cluster, ())
        own = (job for run in self.runs if run.cluster == cluster for job in jobs_of(run, jobs))
        return tuple(dict.fromkeys(node for job in own if holds_nodes(job) for node in job.nodes))[:MAX_NODES]

    def has_own_job(self, cluster: str, node: str) -> bool | None:
        """Whether our user has a job on a node, by the last poll; None without a poll."""
        ours = self._ours.get(cluster)
        return None if ours is None or self._me.get(cluster) is None else node in ours


def with_ended_jobs(
    before: Sequence[Job], listed: Sequence[Job], now: Instant, keep: Seconds = ENDED_RUNS_STAY
) -> tuple[Job, ...]:
    """The listed jobs, and for a day those that left the queue: a run outlives its job."""
    keys = {job.key for job in listed}
    gone = [
        job if job.gone_at is not None else replace(job, gone_at=now)
        for job in before
        if job.key not in keys and not job.is_waiting_array and now - (job.gone_at or now) < keep
    ]
    return (*listed, *gone[:MAX_GONE])


def watch_plan(
    settings: Settings, cluster: ClusterSettings, runs: tuple[RunSpec, ...], followed: tuple[str, ...] = ()
) -> WatchPlan:
    """What is read on one cluster; `followed` are the nodes of its runs' current jobs. Without a [[disk]], every node's
    root disk is read."""
    own = tuple(run for run in runs if run.cluster == cluster.name)
    named = [node for run in run_specs(settings) if run.cluster == cluster.name for node in run.nodes]
    nodes = tuple(dict.fromkeys((*(cluster.nodes if cluster.nodes is not None else followed), *named)))
    disks = {on: tuple(disk.path for disk in settings.disks if disk.on == on) for on in ("login", "nodes", "run")}
    is_open = cluster.nodes is None
    wants_files = bool(own or disks["login"] or is_open)
    reads_here = cluster.login is None and (wants_files or not nodes)
    login = local_hostname() if reads_here else cluster.login
    hosts = nodes if login is None else (login, *nodes)
    return WatchPlan(
        cluster=cluster.name,
        hosts=tuple(dict.fromkeys(hosts)),
        nodes=frozenset(nodes if nodes or is_open else hosts),
        period=cluster.every,
        runs=own,
        shared_disks=disks["login"],
        node_disks=disks["nodes"] or (() if settings.disks else ("/",)),
        run_disks=disks["run"],
        keep=keep((*log_formats(settings), *FORMATS)),
    )
