"""trainmon-tui explain: why an attempt ended, on one page."""

from __future__ import annotations

import os
import shutil
import textwrap
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec

from trainmon.analysis.attempts import why_missing
from trainmon.analysis.explanation import Explanation, explain, page, short_id, short_name
from trainmon.cli.attempts.history import did_you_mean, open_line, silent_lines
from trainmon.cli.terminal import plain, print_json, print_lines
from trainmon.config import load_settings
from trainmon.config.alerts import policy_of
from trainmon.ledger.attempts import AttemptName, columns_of, timestamp
from trainmon.ledger.ledger import attempt_names, attempt_records
from trainmon.ledger.reader import leader_now
from trainmon.lib import ConfigError, TrainmonError, cell_width, clean, find_state_directory, shorten
from trainmon.model import RetryPolicy
from trainmon.runtime.logfile import log_to_file

LAST = "last"
NAMES_AT_MOST = 10_000
SAME_AT_MOST = 10
WIDEST = 110
"""Longer lines are hard to read."""


def explain_attempt(words: tuple[str, ...], as_json: bool, as_markdown: bool, config: Path | None) -> int:
    """Print why an attempt ended; the exit status."""
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    log_to_file()
    directory = find_state_directory(os.environ).path
    name, now = " ".join(words), time.time()
    leader = leader_now(directory, now)
    for line in silent_lines(leader, None if name == LAST else name, now):
        click.echo(plain(line), err=True)
    attempt_id = named(name, attempt_names(directory, NAMES_AT_MOST))
    found = attempt_records(directory, attempt_id)
    if found is None:
        raise click.UsageError(f"attempt {attempt_id} is no longer in the ledger")
    if (silence := open_line(leader, found[0], now)) is not None:
        click.echo(plain(silence), err=True)
    explanation = explain(*found, policy=retry_policy(config))
    if as_json:
        print_json(as_object(explanation))
    elif as_markdown:
        print_lines(*markdown(explanation))
    else:
        width = min(WIDEST, max(80, shutil.get_terminal_size().columns))
        print_lines(*text_lines(explanation, width))
    return 0


def retry_policy(config: Path | None) -> RetryPolicy:
    """The budgets of the config. Without one that can be read, the defaults: an attempt is explained all the same.

    Raises:
        ConfigError: the given file cannot be used.
    """
    try:
        return policy_of(load_settings(config, ())[0].retry, None)
    except ConfigError:
        if config is not None:
            raise
        return RetryPolicy()


def named(name: str, known: Sequence[AttemptName]) -> str:
    """The id of the attempt that is meant: of the attempts of a run, the newest that ended.

    Raises:
        TrainmonError: the ledger has no attempts.
        UsageError: names the attempts that are like it, or the several that have this name.
    """
    if not known:
        raise TrainmonError("the ledger has no attempts yet: the dashboard and the daemon record them")
    meant = [one for one in known if name in (LAST, *_of_a_run(one))]
    if meant:
        return next((one for one in meant if not one.is_open), meant[0]).attempt_id
    meant = [one for one in known if name in _own(one)]
    if len(meant) > 1:
        ids = "\n".join(f"  {one.attempt_id}" for one in meant[:SAME_AT_MOST])
        raise click.UsageError(f"{len(meant)} attempts are called {name}; name one by its id, the newest first:\n{ids}")
    if not meant:
        words = dict.fromkeys(word for one in known for word in (*_of_a_run(one), *_own(one)))
        like = did_you_mean(name, words)
        raise click.UsageError(f"no attempt and no run is called {name}{like} (trainmon-tui attempts lists them)")
    return meant[0].attempt_id


def _of_a_run(one: AttemptName) -> Iterator[str]:
    """The names that its run shares among its attempts."""
    yield one.run_id
    if one.wandb_id is not None:
        yield from (one.wandb_id, one.wandb_id.rpartition("/")[2])


def _own(one: AttemptName) -> Iterator[str]:
    """The names of this attempt alone, unless two clusters have the same job id, or two nodes the same process id."""
    yield from (one.attempt_id, short_name(one.job_id, one.restart, one.wandb_id, one.pid))
    if one.job_id is not None and not one.restart:
        yield f"{one.job_id}.0"


# ---- text and Markdown -------------------------------------------------------------------------------------------


def text_lines(one: Explanation, width: int) -> Iterator[str]:
    """The page for a terminal."""
    wrap = partial(textwrap.wrap, break_on_hyphens=False)
    yield from wrap(clean(one.sentence), width)
    for title, rows in page(one):
        yield from ("", title)
        label = 2 + max((cell_width(row.label) for row in rows), default=0)
        for row in rows:
            head = f"  {row.label}{' ' * (label - cell_width(row.label))}"
            room = width - cell_width(head)
            is_short = row.style == "log" and not row.label.startswith(">")
            lines = [shorten(row.text, room)] if is_short else wrap(row.text, room) or [""]
            yield (head + lines[0]).rstrip()
            yield from (" " * cell_width(head) + line for line in lines[1:])


def markdown(one: Explanation) -> Iterator[str]:
    """A post-mortem: nothing in it is read as markup."""
    yield f"# Post-mortem: attempt {_escaped(short_id(one.attempt))} of {_escaped(one.attempt.run_id)}"
    yield from ("", _escaped(one.sentence))
    for title, rows in page(one):
        yield from ("", f"## {title}", "")
        for is_log, group in groupby(rows, lambda row: row.style == "log" and bool(row.label)):
            if is_log:
                lines = [f"{row.label:>6}  {row.text}".rstrip() for row in group]
                fence = "`" * (3 + max(line.count("`") for line in lines))
                yield from ("", fence, *lines, fence, "")
                continue
            for row in group:
                label = f"**{_escaped(row.label)}** " if row.label else ""
                yield f"- {label}{_escaped(row.text)}".rstrip()


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "\\`*_[]<>#|~" else char for char in text)


# ---- JSON --------------------------------------------------------------------------------------------------------


def as_object(one: Explanation) -> dict[str, Any]:
    """The object for --json. Times are texts as in `attempts --json`."""
    plain = msgspec.to_builtins(one)
    outlook = plain["attempt"]["outlook"]
    resumes = {"resumed": one.resumed, "resumes_at": one.resumes_at}
    return {
        "attempt": {
            **columns_of(one.attempt, one.attempt.ended_at or one.attempt.seen_at),
            "stage": one.attempt.stage,
        },
        "sentence": one.sentence,
        "outlook": outlook if outlook is None else {**outlook, "since": timestamp(outlook["since"])},
        "timeline": [{**moment, "at": timestamp(moment["at"])} for moment in plain["timeline"]],
        "previous": None if one.previous is None else one.previous.attempt_id,
        "next": None if one.following is None else one.following.attempt_id,
        "changes": plain["changes"],
        "settings": plain["settings"],
        **{
            name: None if found is None else {**plain[name], "is_wrong": found.is_wrong}
            for name, found in resumes.items()
        },
        "retry": None if one.retry is None else {**plain["retry"], "left": one.retry.left},
        "earlier": [before.attempt_id for before in one.earlier],
        "why_missing": dict(why_missing(one.attempt)),
        "facts": plain["facts"],
        "context": plain["context"],
        "gpu_hours": [{**hour, "ended_at": timestamp(hour["ended_at"])} for hour in plain["gpu_hours"]],
        "evals": [{**msgspec.to_builtins(result), "missing": list(result.missing)} for result in one.evals],
        "smell_test": [{**check, "is_traceable": not check["to_add"]} for check in plain["checks"]],
        "traceable": one.traceable,
    }
