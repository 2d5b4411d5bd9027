"""trainmon-tui save, kill, requeue …: what the capital keys of the dashboard do, for scripts and for the shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trainmon.cli.options import config_option, read_duration, ssh_config_option

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
    ActCommand("kill", "RUN...", "Ask runs to save and exit: create their kill switch, which stays armed."),
    ActCommand("unkill", "RUN...", "Remove the armed kill switches of runs.", (_switch("kill"),)),
    ActCommand("unsave", "RUN...", "Remove the armed save switches of runs.", (_switch("save"),)),
    ActCommand("requeue", "RUN|JOB...", "End jobs and start them again: scontrol requeue Incomplete."),
    ActCommand("cancel", "RUN|JOB...", "Cancel jobs: scancel."),
    ActCommand("hold", "RUN|JOB...", "Hold waiting jobs: scontrol hold."),
    ActCommand("release", "RUN|JOB...", "Release held jobs: scontrol release."),
    ActCommand("signal", "RUN|JOB... [SIGNAL]", "Send a signal to trainers that save on it. The default is USR1."),
    ActCommand(
        "queue",
        "RUN...",
        "Submit the scripts of runs once more, behind their current jobs: sbatch.",
        (
            click.option(
                "--count",
                type=click.IntRange(1, 1000),
                metavar="N",
                default=1,
                show_default=True,
                help="How many jobs to submit.",
            ),
        ),
    ),
    ActCommand(
        "exclude",
        "NODE...",
        "Keep waiting jobs off nodes, and drain the nodes if Slurm permits you to.",
        (click.option("--run", metavar="RUN", help="Only the jobs of this run. Without it: all your jobs."),),
    ),
)

EXITS = """Exit status: 0 done, 1 failed or without the expected effect, 2 a usage or config error,
3 nothing could be read or the result is unknown, 4 refused."""


def command(verb: str) -> click.Command:
    """The command of a verb."""
    act = next(act for act in ACTS if act.verb == verb)

    def callback(args: tuple[str, ...], **options: Any) -> int:
        from trainmon.cli.act.run import Options, run

        return run(act.verb, args, Options(**options))

    decorated: Callable[..., Any] = callback
    subjects = click.argument("args", nargs=-1, required=True, metavar=act.subject)
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
        help="Wait up to this long for the result: the file consumed, a checkpoint committed, the job started again. "
        "[default: until the first effect, at most 8s]",
    ),
    click.option(
        "--why", metavar="TEXT", default="", help="The reason. It is saved in the switch file and in the ledger."
    ),
    click.option("--typed", metavar="ID", help="The job id, if the plan asks you to type it; for use with --yes."),
    click.option("--yes", is_flag=True, help="Skip the confirmation, but not the checks."),
    click.option("--dry-run", is_flag=True, help="Only print the plan."),
    click.option("--read-only", is_flag=True, help="Refuse the action, like a read-only dashboard."),
)
"""Options of every verb, the last first."""
