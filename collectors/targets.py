"""What the settings want to be watched, told once: the paths, the clusters, and one Plan a cluster."""

from __future__ import annotations

from collectors.assignment import WatchPlan
from collectors.connections import local_hostname
from trainmon.analysis.log_formats import registry as steps
from trainmon.config import ClusterSettings, Settings, log_formats, run_specs
from trainmon.model import Cluster, DisksChanged, RunSpec


def disks_changed(settings: Settings) -> DisksChanged:
    """What the config says of paths beside that they are watched."""
    return DisksChanged(
        {disk.path: disk.usable for disk in settings.disks if disk.usable < 1},
        {disk.path: disk.lag for disk in settings.disks if disk.lag is not None},
    )


def configured_cluster(cluster: ClusterSettings) -> Cluster:
    """A cluster as the config has it; its scheduler, where there is one, tells more."""
    login = cluster.login or local_hostname()
    return Cluster(name=cluster.name, login=login, spares=cluster.spares, users=cluster.users)


def watch_plan(
    settings: Settings, cluster: ClusterSettings, runs: tuple[RunSpec, ...], followed: tuple[str, ...] = ()
) -> WatchPlan:
    """What one cluster of the settings wants to be watched; `followed` are the nodes of its runs' jobs now. With no
    [[disk]], every node's root disk is."""
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
        keep=steps.keep((*log_formats(settings), *steps.FORMATS)),
    )
