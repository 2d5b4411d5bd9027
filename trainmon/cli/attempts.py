"""The commands about attempts: attempts lists them, explain shows why one ended, report and nodes
sum up, sql queries rows."""

from __future__ import annotations

import gc
import os
import shutil
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec

from trainmon.analysis.attempts import silence, why_missing
from trainmon.analysis.explanation import (
    UNSEEN_FOR,
    Explanation,
    Grouping,
    Section,
    explain,
    gpu_hours_text,
    page,
    report,
    report_object,
    report_page,
    report_sentence,
    short_id,
    short_name,
    start_format,
)
from trainmon.analysis.retries import first_errors, judged, record_text, verdict
from trainmon.cli.terminal import plain, print_json, print_lines, table
from trainmon.config import did_you_mean, load_settings
from trainmon.config.schema import Settings, policy_of
from trainmon.ledger.attempts import AttemptName, columns_of, timestamp
from trainmon.ledger.lease import LeaderNote, LeaderNow
from trainmon.ledger.ledger import (
    LedgerStuck,
    attempt_history,
    attempt_names,
    attempt_records,
    attempt_rows,
    node_history,
)
from trainmon.ledger.reader import TIME_LIMIT, leader_now, select
from trainmon.lib import (
    ConfigError,
    Instant,
    TrainmonError,
    by_key,
    cell_width,
    clean,
    counted,
    duration,
    find_state_directory,
    natural_key,
    short_number,
    shorten,
)
from trainmon.model import Attempt, NodeRecord
from trainmon.runtime.logs import log_to_file

# ---- what commands say of attempts that the ledger does not have -----------------------------------------------------

RUNS_AT_MOST, SUGGESTED = 5, 4


def silent_lines(leader: LeaderNow | None, run: str | None, now: Instant) -> Iterator[str]:
    """A sentence for each source that does not answer, if attempts are not recorded because of that: of any run, or of
    this one."""
    if leader is None or not leader.is_held:
        return
    for name, runs in leader.note.unrecorded.items():
        if run is None or run in runs:
            more = "" if len(runs) <= RUNS_AT_MOST else f" and {counted(len(runs) - RUNS_AT_MOST, 'other run')}"
            until = "it responds" if name.startswith("slurm:") else "it responds, or for a minute after the start"
            named = f"{', '.join(runs[:RUNS_AT_MOST])}{more}"
            yield f"{_silence(name, leader.note, now)}: attempts of {named} are not recorded until {until}"


def open_line(leader: LeaderNow | None, attempt: Attempt, now: Instant) -> str | None:
    """That the source of an attempt that has not ended does not answer: it may have ended since."""
    name = f"slurm:{attempt.cluster}" if attempt.job_id is not None else f"wandb:{attempt.run_id}"
    if leader is None or not leader.is_held or not attempt.is_open:
        return None
    is_silent = any(one.name == name and one.health in ("late", "down") for one in leader.note.sources)
    return f"{_silence(name, leader.note, now)}: whether this attempt still runs is not known" if is_silent else None


def _silence(name: str, note: LeaderNote, now: Instant) -> str:

    source = next((one for one in note.sources if one.name == name), None)
    return silence(name, None if source is None else source.answered_at, None if source is None else source.error, now)


# ---- trainmon-tui attempts -------------------------------------------------------------------------------------------

MAX_ATTEMPTS = 10_000

HEAD = ("STARTED", "RUN", "JOB", "CAUSE", "FOR", "GPU-H", "STEP", "LOST", "CKPT")
NARROWEST = {1: 8, 3: 13, 2: 8}
"""The columns that are cut if the table is too wide, and the cells that they keep."""

Row = dict[str, Any]


def list_attempts(run: str | None, since: float, group: str | None, as_json: bool) -> int:
    """Print the attempts of the last `since` seconds, or their counts; the exit status."""
    log_to_file()
    directory, now = find_state_directory(os.environ).path, time.time()
    rows = attempt_rows(directory, now - since, run, MAX_ATTEMPTS)
    for row in rows:
        if row["stage"] == "running" and row["seen_at"] < timestamp(now - UNSEEN_FOR):
            row["stage"] = "unseen"
    for line in silent_lines(leader_now(directory, now), run, now):
        click.echo(plain(line), err=True)
    known = [] if rows or run is None else [one.run_id for one in attempt_names(directory, MAX_ATTEMPTS)]
    if as_json:
        print_json(rows if group is None else grouped(rows, group))
    elif not rows:
        of_run = "" if run is None else f" of {run}"
        like = "" if run is None or run in known else did_you_mean(run, known, SUGGESTED)
        click.echo(plain(f"no attempts{of_run} in this period{like}"), err=True)
    else:
        shown = lines(rows, shutil.get_terminal_size().columns) if group is None else group_lines(rows, group)
        print_lines(*shown)
        if group is None and any(_is_marked(row) for row in rows):
            click.echo("* trainmon-tui did not watch it from start to end", err=True)
        if group is None and any(row["start_is_estimated"] for row in rows):
            click.echo("~ its log shows when it started", err=True)
        if group is None and any(row["stage"] == "unseen" for row in rows):
            click.echo(f"unseen: not recorded for {duration(UNSEEN_FOR)}; whether it still runs is not known", err=True)
    return 0 if rows or run is None or run in known else 2


def lines(rows: Sequence[Row], width: int) -> Iterator[str]:
    """A table for people, at most as wide as the terminal: its columns move closer, then names are cut."""
    shape = start_format((f"{row['run_id']} {_name(row)}", began) for row in rows if (began := _began(row)) is not None)
    cells = [HEAD, *([clean(cell) for cell in _cells(row, shape)] for row in rows)]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= max(80, width) else 1
    over = sum(widths) + gap * (len(widths) - 1) - max(80, width)
    for column, least in NARROWEST.items():
        cut = max(0, min(over, widths[column] - least))
        widths[column] -= cut
        over -= cut
    head, *shown = ([shorten(cell, most) for cell, most in zip(row, widths, strict=True)] for row in cells)
    yield from table(head, shown, gap=gap, numbers=range(HEAD.index("FOR"), len(HEAD)))


def _is_marked(row: Row) -> bool:
    return bool(row["is_reconstructed"] and row["ended_at"])


def _began(row: Row) -> datetime | None:
    return instant(row["started_at"]) or instant(row["first_step_at"])


def _name(row: Row) -> str:

    return short_name(row["job_id"], row["restart"], row["wandb_id"], row["pid"])


def _cells(row: Row, shape: str) -> tuple[str, ...]:
    """The texts of a row. `shape`: how its start is shown."""
    began, until = instant(row["started_at"]), instant(row["ended_at"] or row["seen_at"])
    shown = _began(row)
    cause = row["termination_reason"] or ("unknown" if row["ended_at"] else row["stage"])
    return (
        shown.strftime(f"{'~' if row['start_is_estimated'] else ''}{shape}") if shown is not None else "",
        row["run_id"],
        _name(row),
        cause + ("*" if _is_marked(row) else ""),
        duration((until - began).total_seconds()) if began is not None and until is not None else "",
        hours(row["gpu_seconds"]),
        steps(row["last_step"]),
        steps(row["steps_lost"]),
        steps(row["last_committed_step"]),
    )


def grouped(rows: Sequence[Row], group: str) -> list[Row]:
    """The attempts counted by cause, node, week or run; the most GPU hours first, weeks in their order. An attempt on
    several nodes counts at each of them, with its share of the GPU hours."""
    keys_of = ((row, _keys(row, group)) for row in rows)
    found = by_key((key, (row, len(keys))) for row, keys in keys_of for key in keys)
    counts = [
        {
            group: key,
            "attempts": len(members),
            "running": sum(row["stage"] in ("running", "ending") for row, _ in members),
            "gpu_hours": sum((row["gpu_seconds"] or 0.0) / shares / 3600 for row, shares in members),
            "steps_lost": sum(row["steps_lost"] or 0 for row, _ in members),
            "without_cost": sum(row["gpu_seconds"] is None for row, _ in members),
            "without_loss": sum(row["steps_lost"] is None for row, _ in members),
        }
        for key, members in found.items()
    ]
    if group == "week":
        return sorted(counts, key=lambda count: count[group] or "")
    return sorted(counts, key=lambda count: (-count["gpu_hours"], -count["attempts"], count[group] or ""))


def _keys(row: Row, group: str) -> list[str | None]:
    began = instant(row["started_at"] or row["first_step_at"] or row["seen_at"])
    assert began is not None
    keys: dict[str, list[str | None]] = {
        "node": list(row["nodes"]) or [None],
        "week": [f"{began - timedelta(days=began.weekday()):%Y-%m-%d}"],
        "run": [row["run_id"]],
        "reason": [row["termination_reason"] if row["ended_at"] else row["stage"]],
    }
    return keys[group]


def group_lines(rows: Sequence[Row], group: str) -> Iterator[str]:
    """The groups as a table."""
    yield from table(
        (group.upper(), "ATTEMPTS", "RUNNING", "GPU-H", "STEPS LOST"),
        [
            (
                count[group] or "unknown",
                str(count["attempts"]),
                str(count["running"]),
                "-" if count["without_cost"] == count["attempts"] else hours(3600 * count["gpu_hours"]),
                "-" if count["without_loss"] == count["attempts"] else f"{count['steps_lost']:,}",
            )
            for count in grouped(rows, group)
        ],
    )


def instant(text: str | None) -> datetime | None:
    """A stored time in the time zone of this machine."""
    return None if text is None else datetime.fromisoformat(text).astimezone()


def hours(seconds: float | None) -> str:
    return "" if seconds is None else gpu_hours_text(seconds / 3600)


def steps(count: int | None) -> str:
    """`950`, `12.3k`, `211k`, `1.24M`."""
    if count is None or count < 10_000:
        return "" if count is None else str(count)
    return short_number(count, 3)


# ---- trainmon-tui explain --------------------------------------------------------------------------------------------

LAST = "last"
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
    attempt_id = named(name, attempt_names(directory, 10_000))
    found = attempt_records(directory, attempt_id)
    if found is None:
        raise click.UsageError(f"attempt {attempt_id} is no longer in the ledger")
    if (silence := open_line(leader, found[0], now)) is not None:
        click.echo(plain(silence), err=True)
    nodes = judged(node_history(directory, found[0].ended_at or now)[0])
    records, policy = msgspec.structs.replace(found[1], nodes=nodes), policy_of(settings_of(config).retry, None)
    explanation = explain(found[0], records, policy, now)
    title = f"Post-mortem: attempt {short_id(explanation.attempt)} of {explanation.attempt.run_id}"
    print_page(title, explanation.sentence, page(explanation), as_object(explanation), as_json, as_markdown)
    return 0


def print_page(
    title: str, sentence: str, sections: Sequence[Section], fields: dict[str, Any], as_json: bool, as_markdown: bool
) -> None:
    """Print a page as text, as its fields in JSON, or in Markdown under its title."""
    if as_json:
        print_json(fields)
    elif as_markdown:
        print_lines(*markdown(title, sentence, sections))
    else:
        print_lines(*text_lines(sentence, sections, min(WIDEST, max(80, shutil.get_terminal_size().columns))))


def settings_of(config: Path | None) -> Settings:
    """The settings of the config. Without one that can be read, the defaults: an attempt is explained all the same.

    Raises:
        ConfigError: the given file cannot be used.
    """
    try:
        return load_settings(config, ())[0]
    except ConfigError:
        if config is not None:
            raise
        return Settings()


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
        ids = "\n".join(f"  {one.attempt_id}" for one in meant[:10])
        raise click.UsageError(f"{len(meant)} attempts are called {name}; name one by its id, the newest first:\n{ids}")
    if not meant:
        words = dict.fromkeys(word for one in known for word in (*_of_a_run(one), *_own(one)))
        like = did_you_mean(name, words, SUGGESTED)
        raise click.UsageError(f"no attempt and no run is called {name}{like} (trainmon-tui attempts lists them)")
    return meant[0].attempt_id


def known_names(config: Path | None) -> tuple[list[str], list[str]]:
    """What a shell completes: the runs of the config and of the newest attempts, such as jobs that were found in Slurm;
    and these attempts as `attempts` lists them."""
    runs, found = list[str](), list[AttemptName]()
    with suppress(ConfigError):
        runs = [run.name for run in load_settings(config, ())[0].runs]
    with suppress(LedgerStuck):
        found = attempt_names(find_state_directory(os.environ).path, 200)
    names = [short_name(one.job_id, one.restart, one.wandb_id, one.pid) for one in found]
    return [*runs, *(one.run_id for one in found)], names


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


# ---- one attempt as text and Markdown, and as JSON -------------------------------------------------------------------


def text_lines(sentence: str, sections: Iterable[Section], width: int) -> Iterator[str]:
    """A page for a terminal."""
    wrap = partial(textwrap.wrap, break_on_hyphens=False)
    yield from wrap(clean(sentence), width)
    for title, rows in sections:
        yield from ("", title)
        label = 2 + max((cell_width(row.label) for row in rows), default=0)
        for row in rows:
            head = f"  {row.label}{' ' * (label - cell_width(row.label))}"
            room = width - cell_width(head)
            is_short = row.style == "log" and not row.label.startswith(">")
            lines = [shorten(row.text, room)] if is_short else wrap(row.text, room) or [""]
            yield (head + lines[0]).rstrip()
            yield from (" " * cell_width(head) + line for line in lines[1:])


def markdown(title: str, sentence: str, sections: Iterable[Section]) -> Iterator[str]:
    """A page to share: nothing in it is read as markup."""
    yield f"# {_escaped(title)}"
    yield from ("", _escaped(sentence))
    for title, rows in sections:
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
        "looks": [
            {**look, "at": timestamp(look["at"]), "since": timestamp(look["since"])}
            for look in plain["attempt"]["looks"]
        ],
        "context": plain["context"],
        "gpu_hours": [{**hour, "ended_at": timestamp(hour["ended_at"])} for hour in plain["gpu_hours"]],
        "evals": [{**msgspec.to_builtins(result), "missing": list(result.missing)} for result in one.evals],
        "smell_test": [{**check, "is_traceable": not check["to_add"]} for check in plain["checks"]],
        "traceable": one.traceable,
    }


# ---- trainmon-tui report ---------------------------------------------------------------------------------------------


def print_report(
    run: str | None, since: float, group: Grouping | None, as_json: bool, as_markdown: bool, config: Path | None
) -> int:
    """Print the report of the last `since` seconds; the exit status."""
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    log_to_file()
    gc.disable()  # all is kept until the end: 50,000 attempts would be looked through again and again
    directory, now = find_state_directory(os.environ).path, time.time()
    attempts = attempt_history(directory)
    known = dict.fromkeys(one.run_id for one in attempts)
    if run is not None and run not in known:
        click.echo(plain(f"the ledger has no attempt of {run}{did_you_mean(run, known, SUGGESTED)}"), err=True)
        return 2
    for line in silent_lines(leader_now(directory, now), run, now):
        click.echo(plain(line), err=True)
    found = report(attempts, now - since, now, settings_of(config).prices, run=run, group=group)
    first, last = (timestamp(at) or "" for at in (found.since, found.until))
    title = f"Reliability of {run or 'all runs'}, {first[:10]} to {last[:10]}"
    fields = {"since": first, "until": last, **report_object(found)}
    print_page(title, report_sentence(found), report_page(found), fields, as_json, as_markdown)
    return 0


# ---- trainmon-tui nodes ----------------------------------------------------------------------------------------------


def list_nodes(history: bool, as_json: bool) -> int:
    """Print what the ledger has of each node, the worst first; the exit status."""
    log_to_file()
    directory, now = find_state_directory(os.environ).path, time.time()
    uses, alerts = node_history(directory, now)
    events = by_key(
        (f"{one.cluster}/{one.node}", one) for one in sorted((*alerts, *first_errors(uses)), key=lambda one: one.at)
    )
    records = {key: NodeRecord(cluster=own[0].cluster, node=own[0].node) for key, own in events.items()} | judged(uses)
    clusters = sorted({one.cluster for one in records.values()} - {""})
    names = sorted(
        records,
        key=lambda name: (
            -records[name].probability, -records[name].first_errors, -len(events.get(name, ())), natural_key(name)
        ),
    )  # fmt: skip
    if as_json:
        print_json(
            [
                {
                    **msgspec.to_builtins(records[name]),
                    "events": [
                        {"at": timestamp(one.at), "what": one.what, "text": one.text} for one in events.get(name, ())
                    ],
                }
                for name in names
            ]
        )
        return 0
    for name in names:
        shown = name if len(clusters) > 1 else records[name].node
        print_lines(f"{clean(shown)}: {record_text(records[name], events.get(name, ()))}")
        for one in events.get(name, ()) if history else ():
            at = datetime.fromtimestamp(one.at).astimezone()
            print_lines(f"  {at:%Y-%m-%d %H:%M}  {one.what:<19} {clean(one.text)}")
    verdicts = (verdict(name, records) for name in clusters)
    click.echo(plain("\n".join(map(clean, verdicts)) or "the ledger has no attempt in 90 days"), err=True)
    return 0


# ---- sql: one SELECT on the ledger -----------------------------------------------------------------------------------

GRACE = 0.5
"""Seconds after its time limit in which a query must stop by itself: one call of a function cannot be interrupted."""


def print_rows(query: str, as_json: bool) -> int:
    """Print what a SELECT gives; the exit status."""
    watchdog = threading.Timer(TIME_LIMIT + GRACE, _give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        found = select(find_state_directory(os.environ).path, query)
    finally:
        watchdog.cancel()
    if as_json:
        print_json([dict(zip(found.columns, map(_value, row), strict=True)) for row in found.rows])
    else:
        cells = [["" if value is None else str(_value(value)) for value in row] for row in found.rows]
        print_lines(*table(found.columns, cells))
    return 0


def _value(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _give_up() -> None:
    os.write(2, b"trainmon-tui: the query was stopped after 10s\n")
    os._exit(3)
