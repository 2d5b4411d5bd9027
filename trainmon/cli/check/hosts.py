"""Checks all hosts in parallel and yields their rows in the order of the config."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from collectors.assignment import assign
from collectors.connections import Connections, is_local, local_hostname
from collectors.quota.command import quota_query
from collectors.slurm.pollers import polled_clusters
from collectors.targets import watch_plan
from trainmon.cli.check.files import Tested, files_of
from trainmon.cli.check.host import Wanted, check_host
from trainmon.cli.check.row import Row
from trainmon.cli.check.slurm import Slurm
from trainmon.cli.prompt import ask_on_terminal
from trainmon.config import ClusterSettings, Settings, run_specs
from trainmon.lib import Seconds
from trainmon.model import Spec
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

HOST_AT_MOST: Seconds = 600.0
"""Each step has its own timeout. This one ends the wait if a step hangs nevertheless."""

Told = Callable[[int, Sequence[str]], None]
Job = tuple[Wanted, Callable[[], Shell], bool]


def check_hosts(
    settings: Settings, *, is_person_there: bool, progress: Told, ssh_config: Path | None = None
) -> Iterator[list[Row]]:
    """The rows of each host, in the order of the config; after them those of the nodes that the runs' jobs are on."""
    loop = EventLoop()
    loop.start()
    dials: list[Connections] = []
    try:
        for cluster in settings.clusters:
            dialling = Connections(loop, cluster.connect, ask_on_terminal if is_person_there else None, ssh_config)
            dials.append(dialling)
            asked = _slurm(settings, cluster)
            tour = Tour(settings, cluster, dialling, loop, ssh_config)
            rows = _in_parallel(list(tour.jobs(asked)), cluster.connect.at_once, progress)
            yield from filter(None, rows)  # a machine that is asked for its Slurm alone, and has none, says nothing
            if cluster.nodes is None and asked is not None and asked.nodes:
                nodes = tuple(dict.fromkeys(asked.nodes))
                yield from _in_parallel(list(tour.followed(nodes)), cluster.connect.at_once, progress)
    finally:
        for dialling in dials:
            dialling.close()
        loop.stop()


class Tour(NamedTuple):
    """One cluster to check."""

    settings: Settings
    cluster: ClusterSettings
    dialling: Connections
    loop: EventLoop
    ssh_config: Path | None

    def jobs(self, asked: Slurm | None) -> Iterator[Job]:
        """Its hosts; the first reads the shared files, and its login host or this machine asks its Slurm."""
        watched = watch_plan(self.settings, self.cluster, run_specs(self.settings))
        specs = assign(watched, watched.hosts)
        files = tuple(files_of(watched.runs, watched.shared_disks))
        asks = self.cluster.login or local_hostname()
        for number, host in enumerate(watched.hosts):
            slurm = asked if host == asks else None
            yield self.job(host, specs[host], files if number == 0 else (), slurm)
        if asked is not None and asks not in watched.hosts:
            yield self.job(asks, None, (), asked)

    def followed(self, nodes: tuple[str, ...]) -> Iterator[Job]:
        """The nodes of the runs' jobs."""
        watched = watch_plan(self.settings, self.cluster, run_specs(self.settings), nodes)
        specs = assign(watched, watched.hosts)
        named = watch_plan(self.settings, self.cluster, run_specs(self.settings)).hosts
        for host in nodes:
            if host not in named:
                yield self.job(host, specs[host], (), None)

    def job(self, host: str, spec: Spec | None, files: tuple[Tested, ...], slurm: Slurm | None) -> Job:
        """One host: its checks, and how to connect to it."""
        local = is_local(self.cluster, host)
        python = sys.executable if local else self.cluster.python
        asked = (quota_query(disk, self.cluster) for disk in self.settings.disks if spec and disk.path in spec.disks)
        quotas = tuple(one for one in asked if one is not None)
        wanted = Wanted(host, self.cluster.name, python, spec, files, slurm, self.ssh_config, quotas)
        dial = partial(LocalShell, self.loop, host=host) if local else partial(self.dialling.dial, host)
        return wanted, dial, local


def _slurm(settings: Settings, cluster: ClusterSettings) -> Slurm | None:
    """The checks of its Slurm; None when the config does not use it."""
    watched = next((watched for watched, one in polled_clusters(settings) if one is cluster), None)
    if watched is None:
        return None
    runs = tuple(run for run in run_specs(settings) if run.cluster == cluster.name)
    return Slurm(cluster.name, watched.users, watched.spares, runs, watched.required, [])


def _in_parallel(jobs: Sequence[Job], at_once: int, progress: Told) -> Iterator[list[Row]]:
    """Run the jobs on a few daemon threads, so that a hanging one does not delay the end."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, list[Row]]] = queue.SimpleQueue()
    for number in range(len(jobs)):
        todo.put(number)
    for number in range(min(at_once, len(jobs))):
        threading.Thread(target=_work, args=(jobs, todo, done), name=f"check {number}", daemon=True).start()
    hosts = [wanted.host for wanted, _, _ in jobs]
    ready: dict[int, list[Row]] = {}
    told = 0
    for count in range(1, len(jobs) + 1):
        try:
            number, rows = done.get(timeout=HOST_AT_MOST)
        except queue.Empty:
            break
        progress(count, hosts)
        ready[number] = rows
        while told in ready:
            yield ready.pop(told)
            told += 1
    for number in range(told, len(jobs)):
        late = [Row("bad", hosts[number], "check", f"not done after {HOST_AT_MOST:g} s", f"try: ssh {hosts[number]}")]
        yield ready.get(number, late)


def _work(jobs: Sequence[Job], todo: queue.SimpleQueue[int], done: queue.SimpleQueue[tuple[int, list[Row]]]) -> None:
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        wanted, dial, is_here = jobs[number]
        rows: list[Row] = []
        try:
            rows += check_host(wanted, dial, is_here=is_here)
        except Exception as error:  # a fault of ours is one row: the other hosts are still told
            log.exception("checking %s failed", wanted.host)
            why = f"{type(error).__name__}: {error}"
            rows.append(Row("bad", wanted.host, "check", why, "a bug in trainmon-tui; see its log"))
        done.put((number, rows))
