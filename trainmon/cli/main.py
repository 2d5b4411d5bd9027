"""The command line. Heavy imports happen only when needed, so that `--help` answers at once."""

from __future__ import annotations

import difflib
import gc
import io
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import click

from trainmon.cli.commands import COMMANDS, COMPLETE, DASHBOARD, SUBCOMMANDS, complete, known_hosts

LIKE_COMMANDS = {
    **{name: name for name in SUBCOMMANDS}, "demo": "--demo", "version": "--version",
    "daemon": "--alerts-only", "alerts": "--alerts-only",
}  # fmt: skip
"""What a first word may mean that is no host."""
SIMILARITY = 0.75
"""Of difflib: `satus` is like status, `bastion` is not like actions."""

TAKES_A_VALUE = frozenset({"--config", "--ssh-config"})
"""Options that may stand before a sub-command with a value of their own."""

INTERRUPTED = 130
PIPE_CLOSED = 141
"""The shell's exit status for SIGPIPE; no command uses it."""


def main() -> None:
    """The entry point `trainmon-tui`."""
    gc.set_threshold(50_000)  # what modules make stays: looking for garbage in it was a sixth of their import
    if COMPLETE in os.environ:
        sys.exit(complete(os.environ[COMPLETE]))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that is not UTF-8 gets `?` for a character that it lacks, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """Run one command line. The exit status is 0 to 4 (see docs/reference/commands.md), 130 or 141."""
    name, rest = route(argv)
    try:
        if name == DASHBOARD:
            _refuse_mistyped(argv)
        code = _invoke(name, rest)
        sys.stdout.flush()
    except click.ClickException as error:
        return _refuse(error)
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
    index = _first_word(argv)
    if index is not None and argv[index] in SUBCOMMANDS:
        return argv[index], [*argv[:index], *argv[index + 1 :]]
    return DASHBOARD, list(argv)


def _first_word(argv: Sequence[str]) -> int | None:
    """The index of the first word that is no option; None if there is none before `--`."""
    arguments = iter(enumerate(argv))
    for index, argument in arguments:
        if argument in TAKES_A_VALUE:
            next(arguments, None)
        elif argument == "--" or not argument.startswith("-"):
            return None if argument == "--" else index
    return None


def _refuse_mistyped(argv: Sequence[str]) -> None:
    """Refuse a first word that is like a command, unless it is a host of the config or of the ssh config.

    Raises:
        UsageError: names the command.
    """
    index = _first_word(argv)
    word = "" if index is None or argv[index - 1 : index] == ["--demo"] else argv[index]
    if not word.replace("-", "").isalpha():  # no command has a digit or a dot
        return
    close = difflib.get_close_matches(word.lower(), LIKE_COMMANDS, n=1, cutoff=SIMILARITY)
    if close and word not in _named_hosts(argv):
        meant = LIKE_COMMANDS[close[0]]
        raise click.UsageError(f"did you mean {meant}? (for a host of that name: trainmon-tui -- {word})")


def _named_hosts(argv: Sequence[str]) -> Iterator[str]:
    """The hosts of the ssh config, then those of the config, as the options name the files."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    values = {option: Path(value) for option, value in pairwise(words) if option in TAKES_A_VALUE}
    return known_hosts(values.get("--ssh-config"), values.get("--config"))


def _refuse(error: click.ClickException) -> int:
    """Print a mistake in the call as all other errors are printed; the exit status."""
    from trainmon.cli.terminal import print_error

    text, hint, context = error.format_message(), "", getattr(error, "ctx", None)
    if context is not None and (type(error) is not click.UsageError or text.startswith("Got ")):  # it is click's
        text, hint = text[0].lower() + text[1:].removesuffix("."), f"{context.command_path} --help"
    if isinstance(error, click.NoSuchOption) and error.option_name == "--ssh-config":
        text = "no such option '--ssh-config': this command opens no SSH connection"
    print_error(text, hint)
    return error.exit_code


def _invoke(name: str, argv: list[str]) -> int:
    """Run a command. The exit status of an error is 2 for a mistake in the config, else 3."""
    shown = "trainmon-tui" if name == DASHBOARD else f"trainmon-tui {name}"
    try:
        with COMMANDS[name].make_context(shown, argv) as context:
            return context.command.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException:
        raise
    except Exception as error:
        from trainmon.cli.terminal import print_error
        from trainmon.lib import ConfigError, TrainmonError

        if not isinstance(error, TrainmonError):
            raise
        first, *others = error.problems if isinstance(error, ConfigError) else [error.message]
        more = f"trainmon-tui check, which lists {len(others)} more" if others else ""
        print_error(first, error.hint or more)
        return 2 if isinstance(error, ConfigError) else 3
