"""Queries for `init`: nodes and our running jobs from Slurm, and the owner of the W&B key on this machine."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from collectors.connections import Connections, local_hostname
from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.wire import ReadViewer, Viewer
from trainmon.config import ConnectSettings
from trainmon.lib import TrainmonError, counted
from trainmon.model import Job, SchedulerNode
from trainmon.slurm import commands, parse_jobs
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import AskUser

RUNS_AT_MOST = 20


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
        detailed = [_detailed(client, job) for job in list(latest.values())[:RUNS_AT_MOST]]
        return SlurmReport(me, version, nodes, tuple(job for job in detailed if job.batch))


def _detailed(client: Client, job: Job) -> Job:
    """A job with the details that only scontrol shows; unchanged if scontrol fails."""
    try:
        records = parse_jobs.read_job(client.run(commands.show_job(str(job.number))), "")
    except TrainmonError:
        return job
    detail = next((record for record in records if record.number == job.number), None)
    return job if detail is None else parse_jobs.detailed(job, detail)


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
