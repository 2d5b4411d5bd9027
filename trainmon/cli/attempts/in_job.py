"""What jobs use: trainmon-tui run records start and end of a command; trainmon-tui hooks prints a file to import."""

from __future__ import annotations

import sys

import click

from trainmon import job
from trainmon.cli.options import unused_config_option

PRINT = "--print-script"


class Unparsed(click.Command):
    """A command whose arguments belong to another program, `--` included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] in (["-h"], ["--help"]):
            return super().parse_args(ctx, args)
        ctx.params["words"] = args[2:] if args[:1] == ["--config"] else args
        return []


@click.command(cls=Unparsed)
@click.argument("words", nargs=-1, metavar="[OPTION]... -- COMMAND [ARGUMENT]...")
@unused_config_option
def run(words: list[str]) -> None:
    """Run COMMAND unchanged and record its start and end.

    The same as `trainmon-run`, whose --help lists the options. With --print-script, print trainmon-run as one file that
    needs no installation on the cluster: `trainmon-tui run --print-script > trainmon-run`.
    """
    if words == [PRINT]:
        click.echo(job.run_script(), nl=False)
        return
    sys.argv[1:] = words
    job.main()


@click.command()
@unused_config_option
def hooks() -> None:
    """Print trainmon_hooks.py, which a training loop imports.

    With it, the loop listens to both switches, to signals and to the time limit. One file, Python 3.8 or later, no
    installation on the cluster: `trainmon-tui hooks > trainmon_hooks.py`. Where trainmon-tui is installed, `import
    trainmon_hooks` works without it.
    """
    click.echo(job.hooks_module(), nl=False)
