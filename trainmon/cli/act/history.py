"""trainmon-tui actions: what was done, from the ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from trainmon.cli.terminal import plain, print_json, print_lines, table
from trainmon.ledger.actions import shell_command
from trainmon.ledger.ledger import action_texts, recent_actions
from trainmon.lib import find_state_directory
from trainmon.model import Milestone, Record
from trainmon.runtime.logfile import log_to_file

MAX_ACTIONS = 10_000
"""The most actions that are read: more than a person does in 90 days."""

HEAD = ("TIME", "ACTION", "TARGET", "USER", "STATUS", "RESULT", "EFFECTS")


def list_actions(subject: str | None, as_json: bool, wants_log: bool, since: float) -> int:
    """Print the actions of the last `since` seconds, or the log of one; the exit status."""
    log_to_file()
    directory = find_state_directory(os.environ).path
    found = recent_actions(directory, time.time() - since, MAX_ACTIONS)
    records = [record for record in found if subject is None or is_of(record, subject)]
    if wants_log:
        return print_log(directory, records)
    if as_json:
        print_json([row(record) for record in records])
        return 0
    if records:
        print_lines(*lines(records))
    else:
        click.echo(plain(f"no actions{f' on {subject}' if subject else ''} in this period"), err=True)
    return 0


def print_log(directory: Path, records: Sequence[Record]) -> int:
    """The end of the log that was saved for the newest action that has one."""
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
