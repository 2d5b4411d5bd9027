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
    **dict.fromkeys(VERBS, "act.command"),
    "actions": "act.history",
    "status": "alerts.status",
    "ack": "alerts.ack",
    "mute": "alerts.mute",
    "unmute": "alerts.mute",
    "rules": "alerts.rules",
    "service": "daemon.service",
}
"""The module of each command, inside trainmon.cli; the dashboard is what runs when no other is named."""
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
    value_follows = False
    for index, word in enumerate(argv):
        if value_follows:
            value_follows = False
        elif word in TAKES_A_VALUE:
            value_follows = True
        elif word == "--" or not word.startswith("-"):
            if word in COMMANDS[1:]:
                return word, [*argv[:index], *argv[index + 1 :]]
            break
    return DASHBOARD, list(argv)


def command(name: str) -> click.Command:
    """A command by its name; imports its module, which imports nothing heavy before it runs."""
    if name in VERBS:
        from trainmon.cli.act import command as act

        return act.command(name)
    module = import_module(f"trainmon.cli.{MODULES[name]}")
    found: click.Command = module.unmute if name == "unmute" else module.command
    return found


def _invoke(name: str, argv: list[str]) -> int:
    shown = "trainmon-tui" if name == DASHBOARD else f"trainmon-tui {name}"
    try:
        with command(name).make_context(shown, argv) as context:
            return context.command.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException:
        raise
    except Exception as error:
        from trainmon.lib import TrainmonError

        if not isinstance(error, TrainmonError):
            raise
        return _report(error)


def _report(error: Exception) -> int:
    """Print the error. The exit status is 2 for a mistake in the config, else 3."""
    from trainmon.lib import ConfigError

    if not isinstance(error, ConfigError):
        click.echo(f"trainmon-tui: {error}", err=True)
        return 3
    first, *more = error.problems
    click.echo(f"trainmon-tui: {first}", err=True)
    if more:
        click.echo(f"trainmon-tui: and {len(more)} more: `trainmon-tui check` lists them all", err=True)
    if error.hint:
        click.echo(f"try: {error.hint}", err=True)
    return 2
