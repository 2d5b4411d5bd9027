"""What to watch: the runs of the settings and of the queues, what their logs name, and one WatchPlan per cluster.

Of a cluster with metrics, Prometheus covers nodes that are then not connected to.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from collectors.assignment import WatchPlan, disks_of_nodes
from collectors.connections import local_hostname
from collectors.wandb.login import Credentials
from trainmon.analysis import log_mentions
from trainmon.analysis.log_formats import FORMATS, keep
from trainmon.analysis.log_mentions import Mentions
from trainmon.analysis.runs import (
    ENDED_RUNS_STAY,
    holds_nodes,
    jobs_of,
    owner_of,
    parts_by_node,
    process_runs,
    status_file,
    watched_runs,
)
from trainmon.config import ClusterSettings, ImplicitCluster, Settings, log_formats, run_specs
from trainmon.lib import Instant, Seconds, by_key
from trainmon.model import (
    ON_NODE,
    AnyReading,
    CheckpointListing,
    GpuFactsAll,
    Job,
    JobPart,
    LogChunk,
    OwnProcess,
    RunSpec,
    Source,
    WandbRows,
)

NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

STATE = re.compile(r"/checkpoint-\d+/trainer_state\.json$")
"""Of Hugging Face's Trainer, whose checkpoints are in the directory above."""

CLOCKS_DIFFER: Seconds = 60.0
"""A file server's clock may be so much behind Slurm's."""

MAX_GONE = 5_000
"""Jobs of one cluster that are kept after they left the queue."""

MAX_NODES = 2_000
"""Nodes of one cluster that are watched; each needs a connection."""


@cache  # the same to the microsecond: another start is another spec
def _booted_at() -> Instant:
    """When this machine booted. Only Linux has the clock, and only there a process says when it started."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _with_those_above(path: str) -> Iterator[str]:
    while path.strip("/"):
        yield path
        path = posixpath.dirname(path)


class RunDiscovery:
    """The runs of all clusters, derived from their jobs, and completed by what their logs name."""

    def __init__(self, settings: Settings, login: Callable[[], Credentials | None] = lambda: None) -> None:
        self._use(settings)
        self.runs: tuple[RunSpec, ...] = self._configured
        self._unread: tuple[RunSpec, ...] = self._configured
        """The runs without what their logs name."""
        self._mentions: dict[str, Mentions] = {}
        self._login = login
        self._own: tuple[OwnProcess, ...] = ()
        """Our own processes on its GPUs."""
        self._jobs: dict[str, tuple[Job, ...]] = {}
        self._me: dict[str, str | None] = {}
        self._ours: dict[str, dict[str, JobPart]] = {}
        """By cluster: the nodes with a job of ours, and that job."""
        self._complete()

    def _use(self, settings: Settings) -> None:
        self._settings = settings
        self._configured = run_specs(settings)
        self._local = next((one.name for one in settings.clusters if isinstance(one, ImplicitCluster)), None)
        """The cluster of this machine, if there is no config."""
        self._names = {
            cluster.name: {host.rpartition("@")[2]: host for host in cluster.nodes or () if "@" in host}
            for cluster in settings.clusters
        }
        """By Slurm's node name: the host's name in the config, such as me@gpu-001."""
        self._users = {cluster.name: cluster.users for cluster in settings.clusters}

    def reload(self, settings: Settings, now: Instant) -> None:
        """Use other settings from now on. What is known of the queues and the logs stays."""
        before = self._configured
        self._use(settings)
        for known in (self._jobs, self._me, self._ours):
            for cluster in known.keys() - self._users.keys():
                del known[cluster]
        same = {run.name for run in self._configured if run in before}
        self._unread = tuple(run for run in self._unread if run.found or run.name in same)
        self._watch(now)

    def update(self, cluster: str, jobs: Sequence[Job], me: str | None, now: Instant) -> bool:
        """Store a poll of a cluster's queue. Returns whether the runs have changed."""
        names = self._names.get(cluster, {})

        # The nodes become arguments of ssh, so invalid host names are left out.
        def named(nodes: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names.get(node, node) for node in nodes if NODE.fullmatch(node))

        listed = [
            replace(job, nodes=named(job.nodes), component_nodes=tuple(map(named, job.component_nodes))) for job in jobs
        ]
        keys = {job.key for job in listed}
        gone = [  # for a day: a run outlives its job
            job if job.gone_at is not None else replace(job, gone_at=now)
            for job in self._jobs.get(cluster, ())
            if job.key not in keys and not job.is_waiting_array and now - (job.gone_at or now) < ENDED_RUNS_STAY
        ]
        self._jobs[cluster] = (*listed, *gone[:MAX_GONE])
        self._me[cluster] = me
        self._ours[cluster] = parts_by_node(job for job in listed if me is not None and job.user == me)
        return self._watch(now)

    def _watch(self, now: Instant) -> bool:
        """Determine the runs from all jobs. Returns whether they have changed."""
        everyone = [job for jobs in self._jobs.values() for job in jobs]
        configured = tuple(
            replace(spec, user=owner_of(spec, self._users.get(spec.cluster, ()), self._me.get(spec.cluster)))
            for spec in self._configured
        )
        self._unread = watched_runs(configured, self._unread, everyone, self._me, now)
        self._mentions = {run.name: self._mentions[run.name] for run in self._unread if run.name in self._mentions}
        return self._complete()

    def _complete(self) -> bool:
        """Add what the logs name. Returns whether the runs have changed."""
        named = by_key(((job.cluster, job.name), job) for jobs in self._jobs.values() for job in jobs)
        jobs = [jobs_of(run, named.get((run.cluster, run.job or run.name), ())) for run in self._unread]
        places = [self._places(run, own) for run, own in zip(self._unread, jobs, strict=True)]
        users = by_key(
            ((run.cluster, above), run.name)
            for run, paths in zip(self._unread, places, strict=True)
            for path in (*paths, run.wandb_dir or "")
            for above in _with_those_above(path)
        )
        before, self.runs = self.runs, tuple(
            self._completed(run, own, [path for path in paths if {*users[run.cluster, path]} == {run.name}])
            for run, own, paths in zip(self._unread, jobs, places, strict=True)
        )  # fmt: skip
        return self.runs != before

    def _completed(self, run: RunSpec, jobs: Sequence[Job], directories: Sequence[str]) -> RunSpec:
        """The run with what its log names. Without a directory of metrics in the config, files of metrics may be in
        these directories, in and below which no other run trains, saves or writes metrics."""
        found = self._mentions.get(run.name, Mentions())
        page = found.page
        if page is not None:  # the key is for one server: a log that names another one changes nothing
            login = self._login()
            page = page if login is not None and login.location is not None and login.shows(page.host) else None
        run = log_mentions.with_mentions(run, found, page)
        if run.wandb_dir is not None and "wandb_dir" not in run.from_log:
            return run
        starts = [job.started_at or 0.0 for job in jobs]
        if run.process is not None and run.process.started_s is not None:
            starts.append(_booted_at() + run.process.started_s)
        began = max(starts, default=0.0)
        return replace(run, metrics_found=tuple(directories), metrics_since=began - CLOCKS_DIFFER if began else None)

    def _places(self, run: RunSpec, jobs: Sequence[Job]) -> Collection[str]:
        """Where its log and its command line say that metrics are written, the directory of its checkpoints and the one
        above, and its working directory."""
        found = self._mentions.get(run.name, Mentions())
        checkpoints = run.checkpoints or found.checkpoints or ""
        own = jobs if run.process is None else (run.process,)
        workdir = next((one.workdir for one in own if one.workdir), "")
        command = "" if run.process is None else run.process.command
        named = *found.metrics, *log_mentions.metrics_directories(command, workdir)
        paths = (*named, checkpoints, posixpath.dirname(checkpoints), workdir)
        return dict.fromkeys(posixpath.normpath(path) for path in paths if path.strip("/"))

    def is_relevant(self, node: str, reading: AnyReading) -> bool:
        """Whether a reading of this node may tell more about the runs; from any thread."""
        if isinstance(reading, GpuFactsAll):
            return node == local_hostname() and reading.own != self._own and self._local is not None
        if isinstance(reading, LogChunk):
            return bool(reading.mentions) or log_mentions.is_mention("\n".join(reading.lines))
        if isinstance(reading, WandbRows):
            return STATE.search(reading.path or "") is not None
        return isinstance(reading, CheckpointListing) and reading.path in self.candidates()

    def read(self, reading: AnyReading, now: Instant) -> bool:
        """Store what a log names, what a directory holds that a log names, or which processes train here. Returns
        whether the runs have changed, or the candidates."""
        if isinstance(reading, GpuFactsAll):
            return self._read_processes(reading.own, now)
        before = dict(self._mentions)
        if isinstance(reading, LogChunk):
            name = reading.id.removeprefix(ON_NODE)
            run = next((run for run in self._unread if run.name == name), None)
            if run is not None:
                lines = (*reading.mentions, *reading.kept, *reading.lines)
                known = before.get(name, Mentions())
                self._mentions = before | {name: log_mentions.read(known, lines, self._workdir(run))}
        elif isinstance(reading, WandbRows) and reading.path is not None and STATE.search(reading.path):
            if any(run.name == reading.id for run in self._unread):
                known = before.get(reading.id, Mentions())
                self._mentions = before | {reading.id: log_mentions.saved(known, reading.path)}
        elif isinstance(reading, CheckpointListing):
            self._mentions = {name: log_mentions.listed(found, reading) for name, found in before.items()}
        self._complete()
        return self._mentions != before

    def _read_processes(self, own: tuple[OwnProcess, ...], now: Instant) -> bool:
        """Without a config and without Slurm, our own processes on the GPUs of this machine are runs."""
        self._own = own
        if self._local is None or self._local in self._jobs:
            return False
        before = tuple(run for run in self._unread if run.process is not None)
        found = process_runs(before, own, self._local, local_hostname(), now)
        self._unread = (*(run for run in self._unread if run.process is None), *found)
        return self._complete()

    def _workdir(self, run: RunSpec) -> str | None:
        """The working directory of its process or its job."""
        if run.process is not None:
            return run.process.workdir
        return next((job.workdir for job in jobs_of(run, self._jobs.get(run.cluster, ())) if job.workdir), None)

    def candidates(self, cluster: str | None = None) -> tuple[str, ...]:
        """The directories that logs name as those of checkpoints, of the runs whose config names none."""
        runs = [run for run in self._unread if run.checkpoints is None and cluster in (None, run.cluster)]
        found = [self._mentions.get(run.name, Mentions()) for run in runs]
        return tuple(dict.fromkeys(path for one in found for path in one.directories))

    def nodes(self, cluster: str) -> tuple[str, ...]:
        """The nodes of the jobs of a cluster's runs."""
        jobs = self._jobs.get(cluster, ())
        own = (job for run in self.runs if run.cluster == cluster for job in jobs_of(run, jobs))
        return tuple(dict.fromkeys(node for job in own if holds_nodes(job) for node in job.nodes))[:MAX_NODES]

    def plan(self, cluster: ClusterSettings) -> WatchPlan:
        """What is read on one cluster now."""
        nodes, candidates = self.nodes(cluster.name), self.candidates(cluster.name)
        return watch_plan(self._settings, cluster, self.runs, nodes, candidates)

    def has_own_job(self, cluster: str, node: str) -> bool | None:
        """Whether our user has a job on a node, by the last poll; None without a poll."""
        ours = self._ours.get(cluster)
        return None if ours is None or self._me.get(cluster) is None else node in ours

    def own_part(self, cluster: str, node: str) -> JobPart | None:
        """Our job on a node, by the last poll; None without one."""
        return self._ours.get(cluster, {}).get(node)


def watch_plan(
    settings: Settings,
    cluster: ClusterSettings,
    runs: tuple[RunSpec, ...],
    followed: tuple[str, ...] = (),
    candidates: tuple[str, ...] = (),
) -> WatchPlan:
    """What is read on one cluster; `followed` are the nodes of its runs' current jobs. Without a [[disk]], every node's
    root disk is read."""
    own = tuple(run for run in runs if run.cluster == cluster.name)
    named = [node for run in run_specs(settings) if run.cluster == cluster.name for node in run.nodes]
    is_implicit = isinstance(cluster, ImplicitCluster)
    is_followed = cluster.nodes is None or is_implicit
    nodes = tuple(dict.fromkeys((*(followed if is_followed else cluster.nodes or ()), *named)))
    disks = {on: tuple(disk.path for disk in settings.disks if disk.on == on) for on in ("login", "nodes", "run")}
    is_open = cluster.nodes is None
    reads_here = cluster.login is None and (bool(own or disks["login"] or is_open) or not nodes)
    login = local_hostname() if reads_here else cluster.login
    hosts = nodes if login is None else (login, *nodes)
    return WatchPlan(
        cluster=cluster.name,
        hosts=tuple(dict.fromkeys(hosts)),
        nodes=frozenset(hosts if is_implicit or not (nodes or is_open) else nodes),
        period=cluster.every,
        runs=own,
        shared_disks=disks["login"],
        node_disks=disks["nodes"] or (() if settings.disks else ("/",)),
        run_disks=disks["run"],
        keep=keep((*log_formats(settings), *FORMATS)),
        candidates=candidates,
        own_processes=is_implicit,
        files=tuple(file for run in own if (file := status_file(run)) is not None),
        receipts=tuple(dict.fromkeys(("", *(run.receipts for run in own if run.receipts)))) if own else (),
    )


# ---- which nodes Prometheus covers, and which of them are connected to over SSH, too ---------------------------------

VIEWED_FOR: Seconds = 60.0
"""How long a node stays connected after its screen was closed."""


class OverSsh(NamedTuple):
    """What SSH does with a node: whether it reads it now, and its error."""

    is_up: bool = False
    problem: str | None = None


class Coverage:
    """The nodes of the clusters with metrics. A covered node is connected to over SSH if a run trains there and the
    config does not forbid it, or while its screen is open. The host that reads the files is always connected to."""

    def __init__(self, clusters: Sequence[ClusterSettings]) -> None:
        self._nodes: dict[str, Mapping[str, tuple[str, ...]]] = {}
        """By cluster: the nodes that are read from Prometheus, each with the paths whose disks are watched there."""
        self._watched: dict[str, frozenset[str]] = {}
        """By cluster: its nodes, and the one that reads the files."""
        self._viewed: dict[str, Seconds] = {}
        """By node: when its screen was last seen open."""
        self._has_news = False
        self.reload(clusters)

    def reload(self, clusters: Sequence[ClusterSettings]) -> None:
        """Use the settings of these clusters from now on."""
        self._clusters = {cluster.name: cluster for cluster in clusters if cluster.metrics}
        for known in (self._nodes, self._watched):
            for name in known.keys() - self._clusters.keys():
                del known[name]

    def limited(self, plan: WatchPlan, run_nodes: Collection[str]) -> WatchPlan:
        """The plan with only those hosts that are connected to over SSH now."""
        cluster = self._clusters.get(plan.cluster)
        if cluster is None or not plan.hosts:
            return plan
        first = plan.hosts[0]
        reads_files = bool(plan.runs or plan.shared_disks) or first not in plan.nodes
        always = {cluster.login, first if reads_files else None}
        self._watched[plan.cluster] = frozenset(plan.nodes)
        disks = disks_of_nodes(plan).items()
        self._nodes[plan.cluster] = {host: own for host, own in disks if host in plan.nodes and host not in always}
        if cluster.ssh == "runs":
            always |= {*run_nodes, *(node for run in plan.runs for node in run.nodes)}
        return replace(plan, hosts=tuple(host for host in plan.hosts if host in always or host in self._viewed))

    def nodes(self, cluster: str) -> Mapping[str, tuple[str, ...]]:
        """The nodes of a cluster that are read from Prometheus, each with the paths whose disks are watched there."""
        return self._nodes.get(cluster, {})

    def cluster_of(self, host: str) -> str | None:
        """The cluster whose Prometheus has the numbers of a host."""
        return next((cluster for cluster, nodes in self._nodes.items() if host in nodes), None)

    def past_of(self, host: str) -> str | None:
        """The cluster whose Prometheus has the past of a host: also of the one that reads the files."""
        return next((cluster for cluster, nodes in self._watched.items() if host in nodes), None)

    def hides(self, source: Source) -> bool:
        """Whether a report of an SSH connection says nothing about its node, because Prometheus has its numbers."""
        return source.phase != "up" and source.name.removeprefix("node:") in self.nodes(source.cluster)

    def view(self, host: str, now: Seconds) -> bool:
        """A person looks at a node. Returns whether its screen has just been opened. From any thread."""
        is_new = host not in self._viewed
        if self.past_of(host) is None:
            return False
        self._viewed[host] = now
        self._has_news |= is_new
        return is_new

    def has_changed(self, now: Seconds) -> bool:
        """Whether screens were opened or closed since the last call."""
        closed = [host for host, at in [*self._viewed.items()] if now - at > VIEWED_FOR]
        for host in closed:
            del self._viewed[host]
        has_changed, self._has_news = self._has_news or bool(closed), False
        return has_changed
