"""The options and arguments of several commands: the config, hosts, durations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The config. [default: the first of $TRAINMON_CONFIG, ./trainmon.toml, ~/.config/trainmon-tui/config.toml]",
)
ledger_config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    expose_value=False,
    help="As for every command. The result does not depend on it: all configs share one ledger.",
)
unused_config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    expose_value=False,
    help="As for every command. The result does not depend on it.",
)
ssh_config_option = click.option(
    "--ssh-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read this file instead of ~/.ssh/config, like ssh -F.",
)


def known_hosts(ssh_config: Path | None, config: Path | None) -> Iterator[str]:
    """The hosts of the ssh config, then those of the config if it can be read."""
    from trainmon.config import load_settings
    from trainmon.lib import ConfigError
    from trainmon.transport.ssh.config import known_hosts_by_name

    yield from known_hosts_by_name(ssh_config)
    with suppress(ConfigError):
        for cluster in load_settings(config, ())[0].clusters:
            yield from (*(cluster.nodes or ()), *([cluster.login] if cluster.login else ()))


def _given(context: click.Context, option: str) -> Path | None:
    """The value of an option, before or after the command."""
    found: Path | None = context.params.get(option) or context.find_root().params.get(option)
    return found


def complete_hosts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The hosts of the ssh config and of the config that begin so."""
    names = dict.fromkeys(known_hosts(_given(context, "ssh_config"), _given(context, "config")))
    return [name for name in names if name.startswith(incomplete)]


def complete_runs(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The runs of the config that begin so."""
    from trainmon.config import load_settings
    from trainmon.lib import ConfigError

    with suppress(ConfigError):
        runs = load_settings(_given(context, "config"), ())[0].runs
        return [run.name for run in runs if run.name.startswith(incomplete)]
    return []


def complete_stories(_context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The stories of the demo that begin so."""
    from collectors.demo.stories import STORIES

    return [CompletionItem(name, help=text) for name, text in STORIES.items() if name.startswith(incomplete)]


hosts_argument = click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
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
