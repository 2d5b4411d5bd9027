"""Checks all hosts in parallel and yields their rows in the order of the config."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from collectors.assignment import WatchPlan, assign
from collectors.connections import ClusterConnections, is_local, local_hostname
from collectors.discovery import watch_plan
from collectors.prometheus.nodes import Coverage
from collectors.quota.collector import quota_query
from collectors.slurm.collector import polled_clusters
from trainmon.cli.check.host import HostCheck, check_host
from trainmon.cli.check.output import FileTest, Row, files_of
from trainmon.cli.check.probe import LogChecks
from trainmon.cli.check.slurm import SlurmCheck
from trainmon.cli.terminal import ask_on_terminal
from trainmon.config import ClusterSettings, Settings, log_formats, run_specs
from trainmon.lib import Seconds
from trainmon.model import Spec
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Shell

log = logging.getLogger(__name__)

HOST_TIMEOUT: Seconds = 600.0
"""Each step has its own timeout. This one is for a step that hangs nevertheless."""

Progress = Callable[[int, Sequence[str]], None]
Task = tuple[HostCheck, Callable[[], Shell], bool]
"""The checks of a host, how to connect to it, and whether it is this machine."""


def check_hosts(
    settings: Settings,
    *,
    is_person_there: bool,
    progress: Progress,
    ssh_config: Path | None = None,
    nodes_of_jobs: dict[str, tuple[str, ...]] | None = None,
) -> Iterator[list[Row]]:
    """The rows of each host, in the order of the config; after them those of the nodes that the runs' jobs are on, and
    those of the logs that no host has and of the log formats of the config. `nodes_of_jobs` is filled with these nodes,
    by cluster."""
    loop = EventLoop()
    logs = LogChecks(log_formats(settings), sum(run.log is not None for run in settings.runs), {}, {})
    loop.start()
    with contextlib.ExitStack() as stack:
        stack.callback(loop.stop)
        for cluster in settings.clusters:
            slurm = _slurm_check(settings, cluster)
            own = {} if slurm is None else slurm.own
            client = SlurmClient(loop, cluster)
            connections = ClusterConnections(
                cluster,
                loop,
                ask_on_terminal if is_person_there else None,
                ssh_config,
                client_of=client,
                part_of=lambda _, host, own=own: own.get(host),  # type: ignore[misc]
            )
            client.dial = connections.ssh.dial
            stack.callback(connections.close)
            check = ClusterCheck(settings, cluster, connections, loop, ssh_config, logs)
            rows = _in_parallel(list(check.tasks(slurm)), cluster.connect.at_once, progress)
            yield from filter(None, rows)  # a machine that is only queried for Slurm, and has none, has no rows
            nodes = tuple(dict.fromkeys(slurm.nodes)) if cluster.nodes is None and slurm is not None else ()
            if nodes_of_jobs is not None:
                nodes_of_jobs[cluster.name] = nodes
            yield from _in_parallel(list(check.tasks_of_jobs(nodes)), cluster.connect.at_once, progress)
    yield from filter(None, [[*filter(None, logs.missing.values()), *logs.check_formats()]])


class ClusterCheck(NamedTuple):
    """One cluster to check."""

    settings: Settings
    cluster: ClusterSettings
    connections: ClusterConnections
    loop: EventLoop
    ssh_config: Path | None
    logs: LogChecks

    def tasks(self, slurm: SlurmCheck | None) -> Iterator[Task]:
        """Its hosts; the first reads the shared files, and its login host or this machine queries its Slurm."""
        watched = self._plan(())
        specs = assign(watched, watched.hosts)
        files = tuple(files_of(watched.runs, watched.shared_disks))
        login = self.cluster.login or local_hostname()
        for number, host in enumerate(watched.hosts):
            if self.connections.may_use_step(host, is_node=host in watched.nodes):
                continue  # the queue tells which jobs are there
            yield self.task(host, specs[host], files if number == 0 else (), slurm if host == login else None)
        if slurm is not None and login not in watched.hosts:
            yield self.task(login, None, (), slurm)

    def tasks_of_jobs(self, nodes: tuple[str, ...]) -> Iterator[Task]:
        """The nodes that a step may reach, and those of the runs' jobs that the config does not name."""
        watched, named = self._plan(nodes), self._plan(()).hosts
        specs = assign(watched, watched.hosts)
        for host in watched.hosts:
            if host not in named or self.connections.may_use_step(host, is_node=host in watched.nodes):
                yield self.task(host, specs[host], (), None)

    def _plan(self, nodes: tuple[str, ...]) -> WatchPlan:
        """What is read over SSH. `nodes`: those of the runs' jobs."""
        plan = watch_plan(self.settings, self.cluster, run_specs(self.settings), nodes)
        return Coverage([self.cluster]).limited(plan, nodes)

    def task(self, host: str, spec: Spec | None, files: tuple[FileTest, ...], slurm: SlurmCheck | None) -> Task:
        is_here = is_local(self.cluster, host)
        python = sys.executable if is_here else self.cluster.python
        disks = [disk for disk in self.settings.disks if spec and disk.path in spec.disks]
        quotas = tuple(query for disk in disks if (query := quota_query(disk, self.cluster)) is not None)
        runs = run_specs(self.settings)
        is_node = spec is not None and host in watch_plan(self.settings, self.cluster, runs, (host,)).nodes
        by = self.cluster.connect.by if self.connections.may_use_step(host, is_node=is_node) else "ssh"
        check = HostCheck(
            host, self.cluster.name, python, spec, self.logs, files, slurm, self.ssh_config, quotas, runs, by
        )
        return check, self.connections.dialler(host, is_node=is_node), is_here


def _slurm_check(settings: Settings, cluster: ClusterSettings) -> SlurmCheck | None:
    """The checks of its Slurm; None when the config does not use it."""
    for watched, with_queue in polled_clusters(settings):
        if with_queue is cluster:
            runs = tuple(run for run in run_specs(settings) if run.cluster == cluster.name)
            return SlurmCheck(cluster.name, watched.users, watched.spares, runs, watched.required, [], {})
    return None


class SlurmClient:
    """The client of the host where a cluster's Slurm commands run, which starts the steps. It connects once."""

    def __init__(self, loop: EventLoop, cluster: ClusterSettings) -> None:
        self.dial: Callable[[str], Shell]
        self._loop, self._login = loop, cluster.login
        self._lock = threading.Lock()
        self._client: Client | None = None

    def __call__(self) -> Client:
        with self._lock:
            if self._client is None:
                here = LocalShell(self._loop, host=local_hostname())
                self._client = Client(here if self._login is None else self.dial(self._login))
            return self._client


def _in_parallel(tasks: Sequence[Task], at_once: int, progress: Progress) -> Iterator[list[Row]]:
    """Run the checks on a few daemon threads, so that one that hangs does not delay the end."""
    hosts = [check.host for check, _, _ in tasks]
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, list[Row]]] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    for number in range(min(at_once, len(tasks))):
        threading.Thread(target=_work, args=(tasks, waiting, done), name=f"check {number}", daemon=True).start()
    ready = {
        number: [Row("bad", host, "check", f"not finished after {HOST_TIMEOUT:g}s", f"try: ssh {host}")]
        for number, host in enumerate(hosts)
    }
    arrived: set[int] = set()
    printed = 0
    with contextlib.suppress(queue.Empty):
        while len(arrived) < len(tasks):
            number, rows = done.get(timeout=HOST_TIMEOUT)
            arrived.add(number)
            ready[number] = rows
            progress(len(arrived), hosts)
            while printed in arrived:
                yield ready[printed]
                printed += 1
    yield from (ready[number] for number in range(printed, len(tasks)))


def _work(
    tasks: Sequence[Task], waiting: queue.SimpleQueue[int], done: queue.SimpleQueue[tuple[int, list[Row]]]
) -> None:
    while True:
        try:
            number = waiting.get_nowait()
        except queue.Empty:
            return
        check, connect, is_here = tasks[number]
        rows: list[Row] = []
        try:
            rows += check_host(check, connect, is_here=is_here)
        except Exception as error:  # a bug is one row: the other hosts are still checked
            log.exception("checking %s failed", check.host)
            why = f"{type(error).__name__}: {error}"
            rows.append(Row("bad", check.host, "check", why, "this is a bug in trainmon-tui; see its log"))
        done.put((number, rows))
