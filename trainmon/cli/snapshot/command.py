"""trainmon-tui snapshot: prints the current state once, as tables or as JSON."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmon.cli.options import config_option, hosts_argument, read_duration, ssh_config_option

if TYPE_CHECKING:
    from trainmon.config import Settings
    from trainmon.lib import Seconds
    from trainmon.model import Source, State
    from trainmon.runtime.monitor import Monitor

SETTLE = 1.0
"""Seconds after the last source has answered: the answer of a queue or a run may name more nodes and files."""

EVALUATION_TIMEOUT = 5.0
"""The longest wait for the next evaluation of the rules, which happens every second."""


@click.command("snapshot")
@hosts_argument
@config_option
@ssh_config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in version 1 of its format.")
@click.option(
    "--wait",
    callback=read_duration,
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="The maximum wait for hosts, queues and W&B.",
)
def command(hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, as_json: bool, wait: float) -> int:
    """Print the current state of everything that is watched.

    It waits until every host, queue and W&B run has answered or failed, but not longer than --wait. It never asks for a
    password. It does not wait for the `for` of a rule: a pending critical alert counts as critical. A condition that
    only time can prove, such as an idle GPU, counts only when its alert fires.

    Exit status: 0 no critical alert, 1 a critical alert, 2 a usage or config error, 3 a host, a
    queue or a W&B run is late or unreachable.
    """
    from trainmon.config import load_settings
    from trainmon.engine.snapshot import encode, exit_status
    from trainmon.runtime.logfile import log_to_file
    from trainmon.runtime.monitor import Monitor

    settings, _ = load_settings(config, hosts)
    log_to_file()
    with Monitor(settings, keeps=False, ssh_config=ssh_config) as monitor:
        first_full_state(monitor, wait)
        state = next_evaluation(monitor)
    requested = requested_sources(settings, hosts)
    if as_json:
        click.echo(encode(state, state.at, requested))
    else:
        from trainmon.cli.snapshot.tables import lines
        from trainmon.cli.terminal import plain

        click.echo(plain("\n".join(lines(state, requested))))
    return exit_status(state, requested)


def requested_sources(settings: Settings, hosts: Sequence[str] = ()) -> frozenset[str] | None:
    """The sources that the verdict is about; None: all of them.

    With hosts on the command line, these are the hosts: their login host and Slurm are watched too, but must not hide
    that no host answers. With a config that names W&B runs only, these are the W&B runs: this machine is watched too.
    """
    from trainmon.config import ClusterSettings, watched_nodes

    if hosts:
        return frozenset(f"node:{node}" for cluster in settings.clusters for node in watched_nodes(cluster))
    if settings.clusters != (ClusterSettings(),) or settings.disks or not settings.runs:
        return None
    is_all = all(
        run.wandb
        and run.log in (None, "wandb")
        and not any((run.nodes, run.checkpoints, run.kill_switch, run.save_switch))
        for run in settings.runs
    )
    return frozenset(f"wandb:{run.name}" for run in settings.runs) if is_all else None


def next_evaluation(monitor: Monitor) -> State:
    """The next State in which the rules were evaluated, so that it has the alerts of all that was read."""
    since, evaluated = monitor.engine.clock.now(), threading.Event()

    def received(state: State) -> None:
        if state.evaluated_at is not None and state.evaluated_at > since:
            evaluated.set()

    cancel = monitor.subscribe(received)
    monitor.engine.evaluate_now()
    evaluated.wait(EVALUATION_TIMEOUT)
    cancel()
    return monitor.engine.state


def first_full_state(monitor: Monitor, wait: Seconds) -> State:
    """The first State in which every source has answered or failed, and every file was read; a moment later if more may
    come."""
    is_full = threading.Event()

    def received(state: State) -> None:
        have_answered = bool(state.sources) and all(has_answered(state, source) for source in state.sources.values())
        if have_answered and are_read(state, monitor.named_disks()):
            is_full.set()
        else:
            is_full.clear()

    until = time.monotonic() + wait
    cancel = monitor.subscribe(received)
    while is_full.wait(max(0.0, until - time.monotonic())):
        if may_find_more(monitor.engine.state):
            time.sleep(max(0.0, min(SETTLE, until - time.monotonic())))
        if is_full.is_set():
            break
    cancel()
    return monitor.engine.state


def may_find_more(state: State) -> bool:
    """Whether runs, queues or the shell probe are read, which report in several lines, or a process may be a run."""
    others = any(source.kind != "node" for source in state.sources.values())
    nodes = state.nodes.values()
    have_processes = any(gpu.processes for node in nodes for gpu in node.gpus)
    return bool(state.runs) or others or have_processes or any(node.probe == "sh" for node in nodes)


def has_answered(state: State, source: Source) -> bool:
    """Whether a source has reported its first data, or will not."""
    from trainmon.analysis.nodes import has_read_gpus

    if source.health in ("down", "off") or source.phase in ("retrying", "held", "off"):
        return True
    if source.kind in ("slurm", "wandb", "files", "prometheus"):
        cluster = state.clusters.get(source.cluster) if source.kind == "slurm" else None
        login = state.sources.get(f"node:{cluster.login}") if cluster is not None else None
        is_polled = source.answered_at is not None and (cluster is None or cluster.is_polled)
        return is_polled or (login is not None and login.health == "down")
    node = state.nodes.get(source.name.removeprefix("node:"))
    if source.via is not None:
        server = state.sources.get(source.via)
        is_read = node is not None and (node.gpus_at is not None or node.host_at is not None)
        return is_read or (server is not None and server.health == "down")
    return node is not None and node.host_at is not None and has_read_gpus(node)


def are_read(state: State, disks: Collection[tuple[str, str]]) -> bool:
    """Whether the hosts that answer have reported their disks, logs and W&B files to their ends. A mount that hangs is
    reported after some seconds."""
    readers = {
        name: node.cluster
        for name, node in state.nodes.items()
        if node.probe != "sh" and (source := state.sources.get(f"node:{name}")) is not None and source.health == "ok"
    }
    logs = [run for run in state.runs.values() if run.log is None and (run.spec.log or "").startswith("/")]
    files = [
        run
        for run in state.runs.values()
        if run.spec.wandb_dir is not None and (run.wandb_file is None or run.wandb_file.is_behind)
    ]
    return all(f"{host}:{path}" in state.disks for host, path in disks if host in readers) and not any(
        run.spec.cluster in readers.values() for run in (*logs, *files)
    )
