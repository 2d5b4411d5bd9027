"""The options and arguments of several commands: the config, hosts, durations."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The config. [default: the first of $TRAINMON_CONFIG, ./trainmon.toml, ~/.config/trainmon-tui/config.toml]",
)
ssh_config_option = click.option(
    "--ssh-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read this file instead of ~/.ssh/config, like ssh -F.",
)
hosts_argument = click.argument("hosts", nargs=-1, metavar="[HOST]...")
"""Hosts as ssh knows them, or Slurm host lists."""


def read_duration(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option whose value is a duration as the config writes them: 10s, 1m30s.

    Raises:
        click.BadParameter: when the value is not a duration.
    """
    from trainmon.config import InvalidValue, parse_duration

    try:
        return None if value is None else parse_duration(value)
    except InvalidValue as wrong:
        raise click.BadParameter(str(wrong)) from wrong
