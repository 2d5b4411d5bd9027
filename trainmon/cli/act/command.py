"""trainmon-tui save, kill, requeue …: what the capital keys do, for scripts; and `actions`, their history."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainmon.actions.verbs import VERB
from trainmon.cli.options import (
    complete_hosts,
    complete_runs,
    config_option,
    ledger_config_option,
    read_duration,
    ssh_config_option,
)

if TYPE_CHECKING:
    from trainmon.model import Milestone, Record

# ---- trainmon-tui save, kill, requeue … ------------------------------------------------------------------------------

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


# ---- trainmon-tui actions --------------------------------------------------------------------------------------------

MAX_ACTIONS = 10_000
"""The most actions that are read: more than a person does in 90 days."""

HEAD = ("TIME", "ACTION", "TARGET", "USER", "STATUS", "RESULT", "EFFECTS")


@click.command("actions")
@click.argument("subject", required=False, metavar="[RUN|JOB]")
@click.option("--json", "as_json", is_flag=True, help="A JSON list with one object per action.")
@click.option(
    "--log", "wants_log", is_flag=True, help="Print the end of the job log that was saved before the newest action."
)
@click.option(
    "--since",
    callback=read_duration,
    metavar="DURATION",
    default="7d",
    show_default=True,
    help="List the actions within this time.",
)
@ledger_config_option
def actions(subject: str | None, as_json: bool, wants_log: bool, since: float) -> int:
    """List the actions that were requested on this machine, the newest last.

    Exit status: 0 listed, 2 a usage error, 3 the ledger cannot be read or has no such log.
    """
    from trainmon.cli.terminal import plain
    from trainmon.ledger.ledger import recent_actions
    from trainmon.lib import find_state_directory
    from trainmon.runtime.logfile import log_to_file

    log_to_file()
    directory = find_state_directory(os.environ).path
    found = recent_actions(directory, time.time() - since, MAX_ACTIONS)
    records = [record for record in found if subject is None or is_of(record, subject)]
    if wants_log:
        return print_log(directory, records)
    if as_json:
        import json

        click.echo(json.dumps([row(record) for record in records], ensure_ascii=False))
        return 0
    if records:
        click.echo(plain("\n".join(lines(records))))
    else:
        click.echo(plain(f"no actions{f' on {subject}' if subject else ''} in this period"), err=True)
    return 0


def print_log(directory: Path, records: Sequence[Record]) -> int:
    """The end of the log that was saved for the newest action that has one."""
    from trainmon.cli.terminal import plain
    from trainmon.ledger.ledger import action_texts

    for record in reversed(records):
        for kept in action_texts(directory, record.action.id):
            at = _at(kept.at, "%Y-%m-%d %H:%M:%S")
            click.echo(plain(f"{kept.host}:{kept.path} before: {record.action.title}, {at}"), err=True)
            click.echo(plain(kept.text))
            return 0
    click.echo("no log was saved for these actions", err=True)
    return 3


def is_of(record: Record, subject: str) -> bool:
    """Whether it is about a run, a job (with or without its cluster), or a node."""
    action = record.action
    return subject in (action.subject, action.run, action.job or "", (action.job or "").partition("/")[2])


def row(record: Record) -> dict[str, Any]:
    """An action as plain values; every field is always present, null is not known. Times are Unix seconds."""
    from trainmon.ledger.actions import shell_command

    action = record.action
    return {
        "id": action.id,
        "asked_at": action.requested_at,
        "who": action.who,
        "from_host": action.from_host,
        "verb": action.verb,
        "subject": action.subject,
        "run": action.run,
        "job": action.job,
        "cluster": action.cluster,
        "host": action.host,
        "title": action.title,
        "command": shell_command(action.operation),
        "why": action.why,
        "step": action.step,
        "checkpoint": action.checkpoint,
        "status": record.status,
        "done_at": record.done_at,
        "outcome": record.outcome,
        "marks": [{"name": mark.name, "at": mark.at, "missed": mark.missed} for mark in record.marks],
        "settled_at": record.settled_at,
        "note": record.note,
    }


def lines(records: Sequence[Record]) -> Iterator[str]:
    """A table for people."""
    from trainmon.cli.terminal import table

    rows = []
    for record in records:
        action = record.action
        job = (action.job or "").partition("/")[2]
        of = action.run or job or action.subject
        rows.append((
            _at(action.requested_at, "%Y-%m-%d %H:%M:%S"),
            action.verb,
            f"{of} ({job})" if action.run and job else of,
            f"{action.who}@{action.from_host}",
            record.status,
            "; ".join(filter(None, (record.outcome, record.note, action.why and f"“{action.why}”"))),
            "; ".join(map(_milestone, record.marks)),
        ))  # fmt: skip
    return table(HEAD, rows)


def _milestone(mark: Milestone) -> str:
    if mark.missed is not None:
        return f"not: {mark.name} ({mark.missed})"
    return f"{mark.name} {_at(mark.at, '%H:%M:%S')}" if mark.at is not None else f"{mark.name}: not yet"


def _at(at: float, form: str) -> str:
    return time.strftime(form, time.localtime(at))
