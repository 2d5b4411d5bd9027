"""trainmon-tui run: a command with a receipt of how it began and ended; or the script that does it, for a cluster."""

from __future__ import annotations

import sys

import click

from trainmon import job

PRINT = "--print-script"


class Unparsed(click.Command):
    """A command whose arguments belong to another program, `--` and `-h` included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = args
        return []


@click.command(cls=Unparsed)
@click.argument("words", nargs=-1, metavar="[OPTION]... -- COMMAND [ARGUMENT]...")
def command(words: list[str]) -> None:
    """Run a command as if nothing stood between you and it, and keep a receipt of how it began and ended.

    The same as `trainmon-run`, whose --help lists the options. With --print-script, print trainmon-run as one file that
    needs no installation on the cluster: `trainmon-tui run --print-script > trainmon-run`.
    """
    if words == [PRINT]:
        click.echo(job.run_script(), nl=False)
        return
    sys.argv[1:] = words
    job.main()
