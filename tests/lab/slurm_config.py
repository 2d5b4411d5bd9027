"""The configuration of the lab's Slurm: many nodes on this one machine, no cgroups, no root's directories."""

from __future__ import annotations

import getpass
import os
import random
import socket
from collections.abc import Mapping
from pathlib import Path

SLURM = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PropagateResourceLimits=NONE
MailProg=/bin/true
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
KillWait=2
MinJobAge={min_job_age}
InactiveLimit=0
MessageTimeout=3
SlurmdTimeout=300
{accounting}
{nodes}
PartitionName=train Nodes=ALL Default=YES DefaultTime=01:00:00 MaxTime=UNLIMITED State=UP
"""

NODE = (
    "NodeName=gpu-{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=500"
    " Gres=gpu:h100:{gpus} State=UNKNOWN"
)

NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none"

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={directory}/munge/socket
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/none"""

SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
DbdAddr=127.0.0.1
DbdHost={host}
DbdPort={port}
SlurmUser={user}
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser={user}
StorageLoc=slurm
CommitDelay=1
"""


def host() -> str:
    """This machine as Slurm names it."""
    return socket.gethostname().partition(".")[0]


LOWEST_PORT, HIGHEST_PORT = 10_000, 30_000
"""Below the ports that the kernel gives to connections: a daemon binds its port seconds after it was chosen, and any
connection of another test could have it by then."""

RESERVED: list[int] = []
"""Sockets whose names say which ports this process has taken. Other test processes choose other ports."""


def ports(count: int) -> list[int]:
    """Free ports of loopback, all different, that no other test process chooses as long as this one runs."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(LOWEST_PORT, HIGHEST_PORT), 1_000):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0trainmon-tui test port {port}")  # of no file: it is free again when this process ends
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        RESERVED.append(name.detach())
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports")


def write_slurm(directory: Path, *, nodes: int, gpus: int, min_job_age: int, dbd_port: int | None) -> Path:
    """slurm.conf and gres.conf; the GPUs are plain files."""
    controller, *places = ports(nodes + 1)
    lines = [
        NODE.format(number=number, host=host(), port=port, cpus=min(2, os.cpu_count() or 1), gpus=gpus)
        for number, port in enumerate(places, start=1)
    ]
    accounting = NO_ACCOUNTING if dbd_port is None else ACCOUNTING.format(port=dbd_port, directory=directory)
    path = directory / "slurm.conf"
    fields = {"host": host(), "port": controller, "user": getpass.getuser(), "directory": directory}
    path.write_text(SLURM.format(**fields, min_job_age=min_job_age, accounting=accounting, nodes="\n".join(lines)))
    for number in range(gpus):
        (directory / f"gpu{number}").touch()
    write_gres(directory, {f"gpu-{number}": gpus for number in range(1, nodes + 1)})
    return path


def write_gres(directory: Path, gpus: Mapping[str, int]) -> None:
    """gres.conf: how many GPUs each node finds."""
    text = "".join(
        f"NodeName={node} Name=gpu Type=h100 File={directory}/gpu[0-{count - 1}]\n" for node, count in gpus.items()
    )
    (directory / "gres.conf").write_text(text)


def write_slurmdbd(directory: Path, *, port: int, database: int) -> Path:
    """slurmdbd.conf, which slurmdbd wants readable by its own user only."""
    path = directory / "slurmdbd.conf"
    path.touch(mode=0o600)
    path.write_text(
        SLURMDBD.format(directory=directory, host=host(), port=port, user=getpass.getuser(), database=database)
    )
    return path
