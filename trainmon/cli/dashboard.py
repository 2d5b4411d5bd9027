"""trainmon-tui [HOST…]: the dashboard."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmon import __version__
from trainmon.cli.options import complete_stories, config_option, hosts_argument, ssh_config_option

if TYPE_CHECKING:
    from trainmon.runtime.backend import DashboardBackend


class Dashboard(click.Command):
    """The command of the dashboard. Its help also lists the other commands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from trainmon.cli.main import GROUPS
        from trainmon.cli.main import command as load

        super().format_options(ctx, formatter)
        for purpose, names in GROUPS.items():
            with formatter.section(purpose):
                formatter.write_dl([(name, load(name).get_short_help_str(100)) for name in names])


@click.command("dashboard", cls=Dashboard)
@hosts_argument
@config_option
@ssh_config_option
@click.option(
    "--demo",
    is_flag=False,
    flag_value="",
    metavar="[=STORY]",
    shell_complete=complete_stories,
    help="Show a simulated cluster of 16 nodes and its failures. STORY names the first failure: hot, lost, hang and "
    "others. An unknown name lists all stories.",
)
@click.option("--read-only", is_flag=True, help="Refuse every action.")
@click.option(
    "--alerts-only",
    is_flag=True,
    help="Run the alert daemon, without a dashboard. `trainmon-tui service` prints how to keep it running.",
)
@click.option(
    "--once",
    is_flag=True,
    help="With --alerts-only: evaluate all rules once, send the notifications, and exit. For cron.",
)
@click.version_option(__version__, prog_name="trainmon-tui", message="%(prog)s %(version)s")
def command(
    hosts: tuple[str, ...],
    config: Path | None,
    ssh_config: Path | None,
    demo: str | None,
    read_only: bool,
    alerts_only: bool,
    once: bool,
) -> int:
    """Monitor large training runs in one terminal: nodes, GPUs, disks, jobs and logs.

    Without HOSTs and without a config, it watches this machine and your running Slurm jobs. HOSTs are names that ssh
    knows, or Slurm host lists such as gpu-[001-032]. They need no config. If a host has the name of a command, write --
    before it: trainmon-tui -- check
    """
    if demo is not None and (hosts or config):
        raise click.UsageError("--demo shows a simulated cluster; remove the hosts and --config")
    if once and not alerts_only:
        raise click.UsageError("--once needs --alerts-only; to print the state once, use `trainmon-tui snapshot`")
    if alerts_only and demo is not None:
        raise click.UsageError("--alerts-only and --demo cannot be combined")
    from trainmon.config import load_settings

    records = config is not None or not hosts
    if alerts_only:
        from trainmon.cli.daemon.command import evaluate_once, watch

        if once:
            return evaluate_once(load_settings(config, hosts)[0], hosts, ssh_config, records=records)
        return watch(lambda: load_settings(config, hosts), ssh_config, records=records)
    if demo:
        from collectors.demo.stories import Schedule

        Schedule(demo)  # an unknown name lists all, also without a terminal
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the dashboard needs a terminal; without one, use `trainmon-tui snapshot`")
    if demo is not None:
        from trainmon.runtime.demo import DemoMonitor

        return show(DemoMonitor(demo or None, read_only=read_only))
    from trainmon.runtime.monitor import Monitor

    settings, file = load_settings(config, hosts)
    monitor = Monitor(
        settings, read_only=read_only, prompts=True, program="dashboard", records=records, ssh_config=ssh_config
    )
    return show(monitor, " ".join([str(file and file.resolve()), *hosts]))


def show(backend: DashboardBackend, name: str | None = None) -> int:
    """Run the dashboard until its user quits. The exit status is 128 + the signal if a signal ended it. Under a `name`,
    what it showed is kept for the next start."""
    from trainmon.alerting.notify.channels.desktop import TOASTER
    from trainmon.lib import find_state_directory
    from trainmon.runtime.last_seen import LastSeenFile
    from trainmon.runtime.logfile import log_to_file
    from tui.app import Dashboard as App

    log_to_file()
    kept = None
    if name is not None:
        kept = LastSeenFile(find_state_directory(os.environ).path, name, lambda: backend.engine.state)
    app = App(backend, seen=None if kept is None else kept.before)
    TOASTER.toast = app.toast
    try:
        with backend, ExitStack() as stack:
            if kept is not None:
                kept.start()
                stack.callback(kept.stop)
            app.run()
    finally:
        TOASTER.toast = None
    return app.return_code or 0
