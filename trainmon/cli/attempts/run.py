"""trainmon-tui run: a command with a receipt of how it began and ended; or the script that does it, for a cluster."""

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
def command(words: list[str]) -> None:
    """Run COMMAND unchanged and record its start and end.

    The same as `trainmon-run`, whose --help lists the options. With --print-script, print trainmon-run as one file that
    needs no installation on the cluster: `trainmon-tui run --print-script > trainmon-run`.
    """
    if words == [PRINT]:
        click.echo(job.run_script(), nl=False)
        return
    sys.argv[1:] = words
    job.main()
