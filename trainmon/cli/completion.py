"""trainmon-tui completion: what a shell completes. The scripts for the shells are those of click."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from trainmon.cli.main import COMPLETE, DASHBOARD, SUBCOMMANDS
from trainmon.cli.main import command as load
from trainmon.cli.options import unused_config_option

PROGRAM = "trainmon-tui"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@unused_config_option
def command(shell: str) -> int:
    """Print a script that lets SHELL complete commands, options, hosts, runs and rules.

    \b
    bash: echo 'eval "$(trainmon-tui completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(trainmon-tui completion zsh)"' >> ~/.zshrc
    fish: trainmon-tui completion fish > ~/.config/fish/completions/trainmon-tui.fish
    """
    click.echo(SHELLS[shell](Words(PROGRAM), {}, PROGRAM, COMPLETE).source())
    return 0


def complete(instruction: str) -> int:
    """Answer a shell that asks which words may follow; the exit status."""
    shell = SHELLS.get(instruction.partition("_")[0])
    if shell is None:
        return 1
    click.echo(shell(Words(PROGRAM), {}, PROGRAM, COMPLETE).complete())
    return 0


class Bash(BashComplete):
    """To bash, `--demo=s` is three words. It completes the last."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        joined = "\0".join(words).removesuffix("\0=").replace("\0=\0", "=")
        return joined.split("\0") if joined else [], incomplete


class OneWord(ShellComplete):
    """To zsh and fish, `--demo=s` is one word. They complete all of it."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        option, sign, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if sign and option.startswith("-"):
            for item in found:
                item.value = f"{option}={item.value}"
        return found


class Zsh(OneWord, ZshComplete):
    """As click's."""


class Fish(OneWord, FishComplete):
    """As click's, whose script cuts a description at its first comma."""

    source_template = FishComplete.source_template.replace('split ","', 'split -m 1 ","')


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


class Words(click.Group):
    """The command line as click sees it: the options of the dashboard, then a command or hosts."""

    def __init__(self, name: str) -> None:
        self._hosts, *options = load(DASHBOARD).params
        super().__init__(name, params=options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in SUBCOMMANDS else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        hosts = [] if incomplete.startswith("-") else self._hosts.shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *hosts]
