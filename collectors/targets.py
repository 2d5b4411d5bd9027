"""What the settings ask to watch: the disks, the clusters, and one WatchPlan for each cluster."""

from __future__ import annotations

from collectors.assignment import WatchPlan
from collectors.connections import local_hostname
from trainmon.analysis.log_formats import FORMATS, keep
from trainmon.config import ClusterSettings, Settings, log_formats, run_specs
from trainmon.model import Cluster, DisksChanged, RunSpec


def disks_changed(settings: Settings) -> DisksChanged:
    """The config's settings of disks: the usable part and the expected lag."""
    return DisksChanged(
        {disk.path: disk.usable for disk in settings.disks if disk.usable < 1},
        {disk.path: disk.lag for disk in settings.disks if disk.lag is not None},
    )


def configured_cluster(cluster: ClusterSettings) -> Cluster:
    """A cluster as configured; its scheduler adds more."""
    login = cluster.login or local_hostname()
    return Cluster(name=cluster.name, login=login, spares=cluster.spares, users=cluster.users)


def watch_plan(
    settings: Settings, cluster: ClusterSettings, runs: tuple[RunSpec, ...], followed: tuple[str, ...] = ()
) -> WatchPlan:
    """What is to be read on one cluster; `followed` are the nodes of its runs' jobs now. Without a [[disk]], every
    node's root disk is read."""
    own = tuple(run for run in runs if run.cluster == cluster.name)
    named = [node for run in run_specs(settings) if run.cluster == cluster.name for node in run.nodes]
    nodes = tuple(dict.fromkeys((*(cluster.nodes if cluster.nodes is not None else followed), *named)))
    disks = {on: tuple(disk.path for disk in settings.disks if disk.on == on) for on in ("login", "nodes", "run")}
    is_open = cluster.nodes is None
    wants_files = bool(own or disks["login"] or is_open)
    hosts = nodes
    if cluster.login is not None:
        hosts = (cluster.login, *nodes)
    elif wants_files or not nodes:
        hosts = (local_hostname(), *nodes)
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
