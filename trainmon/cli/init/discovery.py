"""Queries for `init`: nodes and our running jobs from Slurm, and the owner of the W&B key on this machine."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from collectors.connections import Connections, local_hostname
from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.wire import ReadViewer, Viewer
from trainmon.cli.snapshot.command import first_full_state
from trainmon.config import ClusterSettings, ConnectSettings, ImplicitCluster, Settings
from trainmon.lib import Seconds, TrainmonError, counted
from trainmon.model import Job, Run, SchedulerNode
from trainmon.runtime.logfile import log_to_file
from trainmon.runtime.monitor import Monitor
from trainmon.slurm import commands, parse_jobs
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, LocalShell

RUNS_AT_MOST = 20

WAIT: Seconds = 15.0
"""The longest wait for the logs of the runs."""

SETTLE: Seconds = 2.0
"""The wait for directories and W&B runs that the logs name."""


class SlurmReport(NamedTuple):
    """What a Slurm reports."""

    me: str
    version: str | None
    nodes: tuple[SchedulerNode, ...]
    jobs: tuple[Job, ...]
    """Our own batch jobs that run now, one of each name, the latest."""

    @property
    def summary(self) -> str:
        """`Slurm 22.05.8: 32 nodes, gpu-[001-032]; 30 IDLE, 2 DOWN`."""
        states = Counter(node.state for node in self.nodes)
        listed = ", ".join(f"{count} {state}" for state, count in states.most_common(4))
        names = folded([node.name for node in self.nodes])
        return f"Slurm {self.version or ''}: {counted(len(self.nodes), 'node')}, {names}; {listed}".replace(" :", ":")


def query_slurm(login: str | None, ssh_config: Path | None, ask: AskUser | None) -> SlurmReport:
    """Query the Slurm of a login host, or of this machine.

    Raises:
        TrainmonError: when there is none that answers.
    """
    with contextlib.ExitStack() as stack:
        loop = EventLoop()
        loop.start()
        stack.callback(loop.stop)
        connections = Connections(loop, ConnectSettings(), ask, ssh_config)
        stack.callback(connections.close)
        shell = connections.dial(login) if login is not None else LocalShell(loop, host=local_hostname())
        stack.callback(shell.close)
        client = Client(shell)
        me = client.me()
        jobs = parse_jobs.read_queue(client.run(commands.queue()), "")
        version = parse_jobs.read_configuration(client.run(commands.configuration())).version
        nodes = parse_jobs.read_nodes(client.run(commands.nodes()), "")
        running = sorted((job for job in jobs if job.stage == "running" and job.name), key=lambda job: -job.number)
        latest = {job.name: job for job in reversed(running)}
        detailed = _detailed(client, list(latest.values())[:RUNS_AT_MOST])
        return SlurmReport(me, version, nodes, tuple(job for job in detailed if job.batch))


def query_runs(login: str | None, ssh_config: Path | None) -> tuple[Run, ...]:
    """Our runs, with what their logs name: those of the Slurm of a login host; or on this machine, which may train
    without Slurm. Nobody is prompted."""
    log_to_file()
    cluster = ClusterSettings(login=login) if login is not None else ImplicitCluster()
    with Monitor(Settings(clusters=(cluster,)), keeps=False, records=False, ssh_config=ssh_config) as monitor:
        if first_full_state(monitor, WAIT).runs:
            time.sleep(SETTLE)  # what a log names is looked for, too
        runs = monitor.engine.state.runs.values()
    return tuple(run for run in runs if run.spec.ended_at is None)[:RUNS_AT_MOST]


def _detailed(client: Client, jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the details that only scontrol shows; unchanged if scontrol fails."""
    try:
        records = parse_jobs.read_job(client.show_jobs([str(job.number) for job in jobs]) if jobs else "", "")
    except TrainmonError:
        return list(jobs)
    details = {record.number: record for record in records}
    return [parse_jobs.detailed(job, details.get(job.number, job)) for job in jobs]


def folded(nodes: Sequence[str]) -> str:
    """Names of nodes as a Slurm host list."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(nodes), resolver=RESOLVER_NOGROUP)) if nodes else "none"


class Account(NamedTuple):
    """A W&B login of this machine; what its server did not report is None."""

    server: str
    location: str
    user: str | None = None
    entity: str | None = None
    teams: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """`W&B: the key in ~/.netrc is ana's on wandb.ai; teams: vision, speech`."""
        owner = f"is {self.user}'s on" if self.user else "is for"
        teams = [team for team in self.teams if team != self.user]
        return f"W&B: the key in {self.location} {owner} {self.server}" + (
            f"; teams: {', '.join(teams)}" if teams else ""
        )


def query_wandb(
    login: Callable[[], Credentials] = find_credentials,
    client: Callable[[], WandbClient] = ChildClient,
) -> Account | None:
    """The account; None where there is no key. Without a key, no client is started."""
    found = login()
    if found.location is None:
        return None
    account = Account(found.server, found.location)
    try:
        with contextlib.closing(client()) as connection:
            viewer = connection.query(ReadViewer(id=0), Viewer)
    except WandbError:
        return account  # `check` reports the error
    return account._replace(user=viewer.user, entity=viewer.entity, teams=viewer.teams)
