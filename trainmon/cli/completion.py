"""trainmon-tui completion: what a shell completes. The scripts for the shells are those of click."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from trainmon.cli.main import COMPLETE, DASHBOARD, SUBCOMMANDS
from trainmon.cli.main import command as load
from trainmon.cli.options import ledger_config_option

PROGRAM = "trainmon-tui"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@ledger_config_option
def command(shell: str) -> int:
    """Print a script that lets SHELL complete commands, options, hosts, runs and rules.

    \b
    bash: echo 'eval "$(trainmon-tui completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(trainmon-tui completion zsh)"' >> ~/.zshrc
    fish: trainmon-tui completion fish > ~/.config/fish/completions/trainmon-tui.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows the three"
    click.echo(found(Words(PROGRAM), {}, PROGRAM, COMPLETE).source())
    return 0


def complete(instruction: str) -> int:
    """Answer a shell that asks which words may follow; the exit status."""
    return shell_complete(Words(PROGRAM), {}, PROGRAM, COMPLETE, instruction)


class Words(click.Group):
    """The command line as click sees it: the options of the dashboard, then a command or hosts."""

    def __init__(self, name: str) -> None:
        dashboard = load(DASHBOARD)
        self._hosts, *options = dashboard.params
        super().__init__(name, params=options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in SUBCOMMANDS else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        is_option = incomplete.startswith("-")
        hosts = [] if is_option else self._hosts.shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *hosts]
