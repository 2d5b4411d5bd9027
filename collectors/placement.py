"""Who looks at what: from the settings and the hosts that answer to one Spec a host. Pure.

Shared files are read once: on the login host, else on the first node that answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from posixpath import dirname

import msgspec

from trainmon.clock import Seconds
from trainmon.model import RunSpec
from trainmon.readings import LogSpec, Spec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster wants to be watched."""

    cluster: str
    hosts: tuple[str, ...]
    """All that are watched, the first choice for shared files first."""
    nodes: frozenset[str]
    """Those of them that are nodes; a login host may be none."""
    period: Seconds = 2.0
    runs: tuple[RunSpec, ...] = ()
    shared_disks: tuple[str, ...] = ()
    node_disks: tuple[str, ...] = ()
    run_disks: tuple[str, ...] = ()
    keep: str = ""

    @property
    def implied_disks(self) -> tuple[str, ...]:
        """The directories under the runs' own paths: told by their mounts, not by their names."""
        paths = [
            path if path == run.checkpoints else _directory(path)
            for run in self.runs
            for path in (run.checkpoints, run.log, run.kill_switch, run.save_switch)
            if path is not None and path.startswith("/")
        ]
        return tuple(dict.fromkeys(paths))


def place(plan: Plan, up: Collection[str]) -> Mapping[str, Spec]:
    """One Spec for every host of the plan, given the hosts that answer now."""
    reader = next((host for host in plan.hosts if host in up), plan.hosts[0] if plan.hosts else None)
    training = {node for run in plan.runs for node in run.nodes} or plan.nodes
    specs = {}
    for host in plan.hosts:
        disks = list(plan.node_disks) if host in plan.nodes else []
        if host in training:
            disks += plan.run_disks
        if host == reader:
            disks += [*plan.shared_disks, *plan.implied_disks]
        specs[host] = Spec(
            period=plan.period,
            disks=tuple(dict.fromkeys(disks)),
            logs=_logs(plan.runs) if host == reader else (),
            switches=_switches(plan.runs) if host == reader else (),
            checkpoints=_checkpoints(plan.runs) if host == reader else (),
            keep=plan.keep if host == reader else "",
        )
    return specs


def merged(one: Spec, other: Spec) -> Spec:
    """Both of them: two clusters may share the host that reads their files."""
    return Spec(
        period=min(one.period, other.period),
        slow=min(one.slow, other.slow),
        disks=tuple(dict.fromkeys((*one.disks, *other.disks))),
        logs=(*one.logs, *other.logs),
        switches=tuple(dict.fromkeys((*one.switches, *other.switches))),
        checkpoints=tuple(dict.fromkeys((*one.checkpoints, *other.checkpoints))),
        keep=one.keep or other.keep,
    )


def _logs(runs: tuple[RunSpec, ...]) -> tuple[LogSpec, ...]:
    return tuple(
        LogSpec(id=run.name, pattern=run.log) for run in runs if run.log is not None and run.log.startswith("/")
    )


def _switches(runs: tuple[RunSpec, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for run in runs for path in (run.kill_switch, run.save_switch) if path is not None))


def _checkpoints(runs: tuple[RunSpec, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.checkpoints for run in runs if run.checkpoints is not None))


def _directory(path: str) -> str:
    """The nearest directory of a path that holds no wildcard."""
    directory = dirname(path)
    while any(mark in directory for mark in "*?["):
        directory = dirname(directory)
    return directory or "/"
