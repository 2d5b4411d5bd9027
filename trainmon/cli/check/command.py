"""trainmon-tui check: tests the config and everything that it names. Each ✗ comes with a fix."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trainmon.cli.options import config_option, hosts_argument, ssh_config_option


@click.command("check")
@hosts_argument
@config_option
@ssh_config_option
@click.option(
    "--headless",
    is_flag=True,
    help="Never prompt, and do not use the SSH agent of this login session: the daemon has neither.",
)
@click.option("--notify", is_flag=True, help="Send a test notification on every channel, and show the response.")
def command(hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, headless: bool, notify: bool) -> int:
    """Check the config, and test every host, Slurm, Prometheus, path, log, W&B run and channel it names.

    Exit status: 0 no problem, 2 a usage or config error, 3 a problem with a host, Prometheus, Slurm, a path, a log,
    W&B or a channel.
    """
    from trainmon.cli.check.alerting import check_channels, check_daemon, check_textfile
    from trainmon.cli.check.hosts import check_hosts
    from trainmon.cli.check.metrics import check_metrics
    from trainmon.cli.check.output import Row, colour, config_rows, print_fix, print_rows, progress
    from trainmon.cli.check.probe import permission_rows
    from trainmon.cli.check.wandb import check_wandb
    from trainmon.config import load_settings, run_specs
    from trainmon.lib import ConfigError, counted
    from trainmon.runtime.logfile import log_to_file

    log_to_file()
    try:
        settings, file = load_settings(config, hosts)
    except ConfigError as error:
        print_rows([Row("bad", "config", "", problem) for problem in error.problems])
        if error.hint:
            print_fix(error.hint)
        return 2
    own = [*config_rows(settings, file), *permission_rows(settings, file)]
    print_rows(own)
    if headless and os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "the SSH agent of this login session was not used, because the daemon will not have it"
        fix = "give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"
        print_rows([Row("note", "agent", "", text, fix)])
    bad = sum(row.mark == "bad" for row in own)
    is_person_there = not headless and sys.stdin.isatty()
    nodes: dict[str, tuple[str, ...]] = {}
    for rows in check_hosts(
        settings, is_person_there=is_person_there, progress=progress, ssh_config=ssh_config, nodes_of_jobs=nodes
    ):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    metrics = check_metrics(settings, nodes)
    daemon = [*check_daemon(settings, ssh_config, is_person_there=is_person_there), *check_textfile(settings)]
    for rows in (metrics, [*check_wandb(run_specs(settings))], [*check_channels(settings, test=notify)], daemon):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    total = f"{counted(bad, 'problem')} to fix" if bad else "no problems"
    click.echo(click.style(total, bold=True), color=colour())
    return 3 if bad else 0
