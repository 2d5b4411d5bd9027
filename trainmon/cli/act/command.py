"""trainmon-tui save, kill, requeue …: what the capital keys of the dashboard do, for scripts and for the shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from trainmon.actions.verbs import VERB
from trainmon.cli.options import complete_hosts, complete_runs, config_option, read_duration, ssh_config_option

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _switch(kind: str) -> Decorator:
    return click.option("--switch", metavar="PATH", help=f"The {kind} switch to remove, if several are armed.")


OPTIONS: dict[str, Decorator] = {
    "kill switch": _switch("kill"),
    "save switch": _switch("save"),
    "count": click.option(
        "--count",
        type=click.IntRange(1, 1000),
        metavar="N",
        default=1,
        show_default=True,
        help="The number of jobs to queue.",
    ),
    "run": click.option("--run", metavar="RUN", help="Only the jobs of this run. Without it: all your jobs."),
}
"""The options that only some verbs have."""

EXITS = """Exit status: 0 done, 1 failed or without the expected effect, 2 a usage or config error,
3 no data, an unknown result, or a result that is still to come after the wait, 4 refused or not confirmed.
A requeue is done when the job runs again. The other actions are done when the command or the file is accepted, and with
--wait when the result is there."""


def command(verb: str) -> click.Command:
    """The command of a verb."""
    spec = VERB[verb]

    def callback(args: tuple[str, ...], **options: Any) -> int:
        from trainmon.cli.act.run import Options, run

        return run(spec.name, args, Options(**options))

    decorated: Callable[..., Any] = callback
    words = complete_hosts if spec.target == "node" else complete_runs
    subjects = click.argument("args", nargs=-1, required=True, metavar=spec.usage, shell_complete=words)
    decorators: tuple[Decorator, ...] = (*COMMON, *(OPTIONS[name] for name in spec.options), subjects)
    for decorator in decorators:
        decorated = decorator(decorated)
    return click.command(verb, help=f"{spec.summary}\n\n{EXITS}", short_help=spec.summary)(decorated)


COMMON: tuple[Decorator, ...] = (
    ssh_config_option,
    config_option,
    click.option(
        "--wait",
        callback=read_duration,
        metavar="DURATION",
        default=None,
        help="The maximum wait for the result: the switch consumed, a checkpoint committed or the job restarted. "
        "[default: until the first effect, at most 8s; requeue: until the job runs again, at most 4m]",
    ),
    click.option(
        "--why", metavar="TEXT", default="", help="The reason. It is written to the switch and to the ledger."
    ),
    click.option(
        "--typed", metavar="TEXT", help="With --yes: the job id or path, if the plan requires you to type it."
    ),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation. The safety checks still run."),
    click.option("--dry-run", is_flag=True, help="Print the plan and do nothing."),
    click.option("--read-only", is_flag=True, help="Refuse the action, like a read-only dashboard."),
)
"""Options of every verb, the last first."""
