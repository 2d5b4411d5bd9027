"""trainmon-tui save, kill, requeue …: what the capital keys of the dashboard do, for scripts and for the shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trainmon.cli.options import complete_hosts, complete_runs, config_option, read_duration, ssh_config_option

if TYPE_CHECKING:
    from trainmon.model import Verb


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class ActCommand(NamedTuple):
    """One verb: its subjects, its help and its own options."""

    verb: Verb
    subject: str
    help: str
    options: tuple[Decorator, ...] = ()


def _switch(kind: str) -> Decorator:
    return click.option("--switch", metavar="PATH", help=f"The {kind} switch to remove, if several are armed.")


ACTS = (
    ActCommand("save", "RUN...", "Ask runs to save a checkpoint: create their save switch."),
    ActCommand("kill", "RUN...", "Ask runs to save and exit: create their kill switch. It stays armed until removed."),
    ActCommand("unkill", "RUN...", "Remove the armed kill switches of runs.", (_switch("kill"),)),
    ActCommand("unsave", "RUN...", "Remove the armed save switches of runs.", (_switch("save"),)),
    ActCommand(
        "requeue",
        "RUN|JOB...",
        "Stop jobs and put them back into the queue, or start ended ones again (scontrol requeue).",
    ),
    ActCommand("cancel", "RUN|JOB...", "Cancel jobs (scancel)."),
    ActCommand("hold", "RUN|JOB...", "Hold pending jobs (scontrol hold)."),
    ActCommand("release", "RUN|JOB...", "Release held jobs (scontrol release)."),
    ActCommand(
        "signal",
        "RUN|JOB... [SIGNAL]",
        "Send a signal to trainers that save a checkpoint when they receive it. The default is USR1.",
    ),
    ActCommand(
        "queue",
        "RUN...",
        "Queue another job of each run: its script (sbatch). The new jobs start after the present ones.",
        (
            click.option(
                "--count",
                type=click.IntRange(1, 1000),
                metavar="N",
                default=1,
                show_default=True,
                help="The number of jobs to queue.",
            ),
        ),
    ),
    ActCommand(
        "exclude",
        "NODE...",
        "Exclude nodes from pending jobs, and drain the nodes if you have permission.",
        (click.option("--run", metavar="RUN", help="Only the jobs of this run. Without it: all your jobs."),),
    ),
)

EXITS = """Exit status: 0 done, 1 failed or without the expected effect, 2 a usage or config error,
3 no data, an unknown result, or a result that is still to come after the wait, 4 refused or not confirmed.
A requeue is done when the job runs again. The other actions are done when the command or the file is accepted, and with
--wait when the result is there."""


def command(verb: str) -> click.Command:
    """The command of a verb."""
    act = next(act for act in ACTS if act.verb == verb)

    def callback(args: tuple[str, ...], **options: Any) -> int:
        from trainmon.cli.act.run import Options, run

        return run(act.verb, args, Options(**options))

    decorated: Callable[..., Any] = callback
    words = complete_hosts if verb == "exclude" else complete_runs
    subjects = click.argument("args", nargs=-1, required=True, metavar=act.subject, shell_complete=words)
    decorators: tuple[Decorator, ...] = (*COMMON, *reversed(act.options), subjects)
    for decorator in decorators:
        decorated = decorator(decorated)
    return click.command(verb, help=f"{act.help}\n\n{EXITS}", short_help=act.help)(decorated)


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
