"""What `init` asks of Slurm: which nodes there are, and which of our own jobs run, to be written as runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from collectors.connections import Connections, local_hostname
from trainmon.config import ConnectSettings
from trainmon.lib import TrainmonError, counted
from trainmon.model import Job, SchedulerNode
from trainmon.slurm import commands, parse_jobs
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import AskUser, Shell

RUNS_AT_MOST = 20


class Found(NamedTuple):
    """What a Slurm says."""

    me: str
    version: str | None
    nodes: tuple[SchedulerNode, ...]
    jobs: tuple[Job, ...]
    """Our own batch jobs that run now, one of each name, the latest."""

    @property
    def summary(self) -> str:
        """`Slurm 22.05.8: 32 nodes, gpu-[001-032]; 30 IDLE, 2 DOWN`."""
        states = Counter(node.state for node in self.nodes)
        told = ", ".join(f"{count} {state}" for state, count in states.most_common(4))
        names = folded([node.name for node in self.nodes])
        return f"Slurm {self.version or ''}: {counted(len(self.nodes), 'node')}, {names}; {told}".replace(" :", ":")


def look(login: str | None, ssh_config: Path | None, ask: AskUser | None) -> Found:
    """Ask the Slurm of a login host, or of this machine. Raises TrainmonError where there is none that answers."""
    loop = EventLoop()
    loop.start()
    dialling = Connections(loop, ConnectSettings(), ask, ssh_config)
    shell: Shell | None = None
    try:
        shell = dialling.dial(login) if login is not None else LocalShell(loop, host=local_hostname())
        return read(Client(shell))
    finally:
        if shell is not None:
            shell.close()
        dialling.close()
        loop.stop()


def read(client: Client) -> Found:
    """The same, with a client at hand."""
    me = client.me()
    jobs = parse_jobs.read_queue(client.run(commands.queue()), "")
    version = parse_jobs.read_configuration(client.run(commands.configuration())).version
    nodes = parse_jobs.read_nodes(client.run(commands.nodes()), "")
    running = sorted((job for job in jobs if job.stage == "running" and job.name), key=lambda job: -job.number)
    latest = {job.name: job for job in reversed(running)}
    told = [_told(client, job) for job in list(latest.values())[:RUNS_AT_MOST]]
    return Found(me, version, nodes, tuple(job for job in told if job.batch))


def _told(client: Client, job: Job) -> Job:
    """A job with what only scontrol says; as it is where that does not answer."""
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
