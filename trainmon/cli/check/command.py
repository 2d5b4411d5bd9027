"""trainmon-tui check: tests the config and everything that it names. Each ✗ comes with a fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from trainmon.cli.check.alerting import check_channels, check_daemon, check_textfile
from trainmon.cli.check.hosts import check_hosts
from trainmon.cli.check.output import Row, colour, config_rows, permission_rows, print_fix, print_rows, progress
from trainmon.cli.check.services import check_metrics, check_wandb
from trainmon.cli.terminal import ask_on_terminal
from trainmon.config import Settings, load_settings, run_specs
from trainmon.lib import ConfigError, counted
from trainmon.runtime.logfile import log_to_file


def check_all(
    hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, headless: bool, notify: bool
) -> int:
    """Check the config and all that it names, and print the rows; the exit status."""

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
