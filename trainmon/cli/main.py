"""The command line. Heavy imports happen only when needed, so that `--help` answers at once."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

DASHBOARD = "dashboard"
VERBS = (
    "save", "kill", "unkill", "unsave", "requeue", "cancel", "hold", "release", "signal", "queue", "exclude",
)  # fmt: skip
"""The commands that act."""
MODULES = {
    DASHBOARD: "dashboard",
    "snapshot": "snapshot.command",
    "check": "check.command",
    "init": "init.command",
    "log-format": "log_format",
    **dict.fromkeys(VERBS, "act.command"),
    "actions": "act.history",
    "status": "alerts.status",
    "ack": "alerts.requests",
    "mute": "alerts.requests",
    "unmute": "alerts.requests",
    "rules": "alerts.rules",
    "service": "daemon.service",
}
"""The module of each command, in trainmon.cli. Without a command, the dashboard runs."""
COMMANDS = tuple(MODULES)

TAKES_A_VALUE = frozenset({"--config", "--ssh-config"})
"""Options that may stand before a sub-command with a value of their own."""

INTERRUPTED = 130
PIPE_CLOSED = 141
"""The shell's exit status for SIGPIPE; no command uses it."""


def main() -> None:
    """The entry point `trainmon-tui`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that is not UTF-8 gets `?` for a character that it lacks, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """Run one command line. The exit status is 0 to 4 (see docs/commands.md), 130 or 141."""
    name, rest = route(argv)
    try:
        code = _invoke(name, rest)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo(err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def route(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The command of a line, and its arguments. A sub-command wins over a host of the same name, and
    `--` before a name makes it a host: `trainmon-tui -- check`."""
    arguments = iter(enumerate(argv))
    for index, argument in arguments:
        if argument in TAKES_A_VALUE:
            next(arguments, None)
        elif argument in COMMANDS[1:]:
            return argument, [*argv[:index], *argv[index + 1 :]]
        elif argument == "--" or not argument.startswith("-"):
            break
    return DASHBOARD, list(argv)


def command(name: str) -> click.Command:
    """A command by its name; imports its module, which imports nothing heavy before it runs."""
    if name in VERBS:
        from trainmon.cli.act import command as act

        return act.command(name)
    module = import_module(f"trainmon.cli.{MODULES[name]}")
    found: click.Command = getattr(module, name) if MODULES[name] == "alerts.requests" else module.command
    return found


def _invoke(name: str, argv: list[str]) -> int:
    """Run a command. The exit status of an error is 2 for a mistake in the config, else 3."""
    shown = "trainmon-tui" if name == DASHBOARD else f"trainmon-tui {name}"
    try:
        with command(name).make_context(shown, argv) as context:
            return context.command.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException:
        raise
    except Exception as error:
        from trainmon.lib import ConfigError, TrainmonError

        if not isinstance(error, TrainmonError):
            raise
        problems = error.problems if isinstance(error, ConfigError) else [str(error)]
        click.echo(f"trainmon-tui: {problems[0]}", err=True)
        if len(problems) > 1:
            click.echo(f"trainmon-tui: and {len(problems) - 1} more; `trainmon-tui check` lists all of them", err=True)
        if error.hint and isinstance(error, ConfigError):
            click.echo(f"try: {error.hint}", err=True)
        return 2 if isinstance(error, ConfigError) else 3
