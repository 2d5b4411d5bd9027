"""What several commands take: the config, hosts, durations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def config_option(function: F) -> F:
    """--config F."""
    text = "The config to use. [default: $TRAINMON_CONFIG, ./trainmon.toml, ~/.config/trainmon-tui/config.toml]"
    return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=text)(function)


def ssh_config_option(function: F) -> F:
    """--ssh-config F, as ssh's own -F."""
    kind = click.Path(path_type=Path, exists=True, dir_okay=False)
    text = "Read this file instead of ~/.ssh/config, like ssh -F."
    return click.option("--ssh-config", type=kind, metavar="FILE", help=text)(function)


def hosts_argument(function: F) -> F:
    """HOST… as ssh knows them, or Slurm host lists."""
    return click.argument("hosts", nargs=-1, metavar="[HOST]...")(function)


def read_duration(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option whose value is a duration as the config writes them: 10s, 1m30s."""
    from trainmon.config import InvalidValue, parse_duration

    try:
        return None if value is None else parse_duration(value)
    except InvalidValue as wrong:
        raise click.BadParameter(str(wrong)) from wrong
