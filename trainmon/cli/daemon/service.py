"""trainmon-tui service: what keeps `--alerts-only` running on this site: a unit, a crontab, a job script."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from trainmon.cli.options import config_option, ssh_config_option


@click.command("service")
@click.argument("kind", type=click.Choice(["systemd", "cron", "slurm", "tmux"]), metavar="systemd|cron|slurm|tmux")
@config_option
@ssh_config_option
def command(kind: str, config: Path | None, ssh_config: Path | None) -> int:
    """Print how to keep `--alerts-only` running: a systemd unit, crontab lines, a Slurm job that submits the next one,
    or a tmux command. Comments in it say how to install it.

    Exit status: 0 printed, 2 a mistake in the call or the config.
    """
    from trainmon.cli.daemon import service_templates as service_texts
    from trainmon.config import load_settings

    _, file = load_settings(config, ())
    texts: Mapping[str, Callable[[list[str]], str]] = {
        "systemd": service_texts.systemd,
        "cron": service_texts.cron,
        "slurm": service_texts.slurm,
        "tmux": service_texts.tmux,
    }
    click.echo(texts[kind](daemon_argv(file, ssh_config)))
    return 0


def daemon_argv(config: Path | None, ssh_config: Path | None) -> list[str]:
    """The daemon's command line, with absolute paths: who starts it has another PATH and another directory."""
    argv = [*program(), "--alerts-only"]
    if config is not None:
        argv += ["--config", str(config.absolute())]
    if ssh_config is not None:
        argv += ["--ssh-config", str(ssh_config.absolute())]
    return argv


def program() -> list[str]:
    """This program, as anybody may start it."""
    beside = Path(sys.executable).with_name("trainmon-tui")
    found = str(beside) if beside.exists() else shutil.which("trainmon-tui")
    return [found] if found else [sys.executable, "-m", "trainmon"]
