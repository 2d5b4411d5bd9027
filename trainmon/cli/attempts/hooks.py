"""trainmon-tui hooks: the file that a training script imports."""

from __future__ import annotations

import click

from trainmon import job
from trainmon.cli.options import unused_config_option


@click.command()
@unused_config_option
def command() -> None:
    """Print trainmon_hooks.py, which a training loop imports.

    With it, the loop listens to both switches, to signals and to the time limit. One file, Python 3.8 or later, no
    installation on the cluster: `trainmon-tui hooks > trainmon_hooks.py`. Where trainmon-tui is installed, `import
    trainmon_hooks` works without it.
    """
    click.echo(job.hooks_module(), nl=False)
