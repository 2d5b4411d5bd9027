"""trainmon-tui check: tests the config and everything that it names. Each ✗ comes with a fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmon.cli.options import config_option, hosts_argument, ssh_config_option

if TYPE_CHECKING:
    from trainmon.cli.check.output import Row
    from trainmon.config import Settings


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
    from trainmon.cli.check.output import Row, colour, print_fix, print_rows
    from trainmon.config import load_settings
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
    bad = 0
    for rows in _everything(settings, file, ssh_config, headless=headless, notify=notify):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    total = f"{counted(bad, 'problem')} to fix" if bad else "no problems"
    click.echo(click.style(total, bold=True), color=colour())
    return 3 if bad else 0


def _everything(
    settings: Settings, file: Path | None, ssh_config: Path | None, *, headless: bool, notify: bool
) -> Iterator[list[Row]]:
    """The rows of the config, and then of all that it names, as soon as each part is known."""
    from trainmon.cli.check.alerting import check_channels, check_daemon, check_textfile
    from trainmon.cli.check.hosts import check_hosts
    from trainmon.cli.check.output import Row, config_rows, permission_rows, progress
    from trainmon.cli.check.services import check_metrics, check_wandb
    from trainmon.cli.terminal import ask_on_terminal
    from trainmon.config import run_specs

    yield [*config_rows(settings, file), *permission_rows(settings, file)]
    if headless and os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "the SSH agent of this login session was not used, because the daemon will not have it"
        fix = "give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"
        yield [Row("note", "agent", "", text, fix)]
    ask = ask_on_terminal if not headless and sys.stdin.isatty() else None
    nodes: dict[str, tuple[str, ...]] = {}
    yield from check_hosts(settings, ask=ask, progress=progress, ssh_config=ssh_config, nodes_of_jobs=nodes)
    yield check_metrics(settings, nodes)
    yield check_wandb(run_specs(settings))
    yield list(check_channels(settings, test=notify))
    yield [*check_daemon(settings, ssh_config, ask), *check_textfile(settings)]
