"""What a shell completes. The scripts for the shells are those of click."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

PROGRAM = "trainmon-tui"
COMPLETE = "_TRAINMON_TUI_COMPLETE"
"""Set by the shell's completion, which asks for the words that may follow."""


def script(shell: str, commands: Mapping[str, click.Command]) -> str:
    """The script that makes a shell complete our command lines. It sets COMPLETE."""
    return SHELLS[shell](Words(commands), {}, PROGRAM, COMPLETE).source()


def complete(instruction: str, commands: Mapping[str, click.Command]) -> int:
    """Answer a shell that asks which words may follow; the exit status."""
    shell = SHELLS.get(instruction.partition("_")[0])
    if shell is None:
        return 1
    click.echo(shell(Words(commands), {}, PROGRAM, COMPLETE).complete())
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

    def __init__(self, commands: Mapping[str, click.Command]) -> None:
        dashboard, *others = commands.values()
        self._hosts, *options = dashboard.params
        super().__init__(PROGRAM, params=options, commands=others)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        hosts = [] if incomplete.startswith("-") else self._hosts.shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *hosts]
