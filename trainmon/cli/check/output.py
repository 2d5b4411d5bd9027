"""The rows of `trainmon-tui check`: how they are collected and printed, and those of paths."""

from __future__ import annotations

import itertools
import logging
import multiprocessing.pool
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import dirname
from typing import Literal, NamedTuple

import click

from trainmon.cli.terminal import plain
from trainmon.lib import (
    Seconds,
    TrainmonError,
    clean,
    shorten,
)
from trainmon.model import RunSpec
from trainmon.transport.shell import Shell
from tui.style import DEAD, DONE, WARN

log = logging.getLogger(__name__)

# ---- rows, from checks that run in parallel --------------------------------------------------------------------------


class Row(NamedTuple):
    """What was checked, the result, and for ✗ how to fix it."""

    mark: Literal["ok", "bad", "note"]
    subject: str
    what: str
    text: str
    fix: str = ""


Check = tuple[Row, Callable[[], Iterable[Row]]]
"""A check, and before it the row that stands for it when it does not end."""


def in_parallel(
    checks: Sequence[Check],
    at_once: int,
    timeout: Seconds,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[list[Row]]:
    """The rows of each check, in this order. The checks run on a few daemon threads, so that one that hangs does not
    delay the end: nothing waits longer than `timeout` for the next result. `progress` gets how many have ended."""
    numbers = itertools.count(1)
    with multiprocessing.pool.ThreadPool(max(1, min(at_once, len(checks)))) as pool:  # its threads are daemons
        done = [
            pool.apply_async(_ended, check, callback=lambda _: progress(next(numbers), len(checks))) for check in checks
        ]
        for (late, _), rows in zip(checks, done, strict=True):
            try:
                yield rows.get(timeout)
            except multiprocessing.TimeoutError:
                yield [late]
                timeout = 0.0  # what hangs is waited for once


def _ended(late: Row, check: Callable[[], Iterable[Row]]) -> list[Row]:
    rows: list[Row] = []
    try:
        rows += check()
    except Exception as error:  # a bug is one row: the other checks go on
        log.exception("checking %s failed", late.subject)
        why = f"{type(error).__name__}: {error}"
        rows.append(late._replace(text=why, fix="this is a bug in trainmon-tui; see its log"))
    return rows


def reported(subject: str, what: str, rows: Iterable[Row], fix: str = "") -> Iterator[Row]:
    """The rows. A failure ends them with a row of its own, and with this fix if it has no hint."""
    try:
        yield from rows
    except TrainmonError as error:
        yield Row("bad", subject, what, error.message, error.hint or fix)


# ---- the paths of the config -----------------------------------------------------------------------------------------

PATH_TIMEOUT: Seconds = 5.0


class FileTest(NamedTuple):
    """A path, the flag of test(1) that it must pass, and the texts of both results."""

    path: str
    flag: str
    good: str
    bad: str
    fix: str


def files_of(runs: Sequence[RunSpec], shared: Sequence[str]) -> Iterator[FileTest]:
    """The checks of the runs' files, and of the paths whose disks are watched."""
    for path in shared:
        yield FileTest(path, "-r", "readable", "missing or not readable", "create it, or ask for read permission")
    for run in runs:
        if run.script is not None:
            fix = f"fix the `script` of run {run.name} in the config"
            yield FileTest(run.script, "-r", "readable", "missing or not readable", fix)
        if run.checkpoints is not None:
            fix = "create it, or ask for r and x permission"
            yield FileTest(run.checkpoints, "-d", "a directory", "missing or not a directory", fix)
            yield FileTest(run.checkpoints, "-r", "can be listed", "cannot be listed (no r permission)", fix)
            yield FileTest(run.checkpoints, "-x", "can be entered", "cannot be entered (no x permission)", fix)
    folders = [dirname(path) or "/" for run in runs for path in (run.kill_switch, run.save_switch) if path is not None]
    for folder in dict.fromkeys(folders):
        fix = "create it, or ask for write permission: the actions save and kill need it"
        yield FileTest(folder, "-w", "switches can be created", "missing or not writable", fix)


def check_files(host: str, shell: Shell, tests: Iterable[FileTest]) -> Iterator[Row]:
    """One row per path: the first test that fails, or the last one."""
    rows: dict[str, Row] = {}
    for test in tests:
        if test.path not in rows or rows[test.path].mark != "bad":
            (rows[test.path],) = reported(host, test.path, _tested(host, shell, test))
    yield from rows.values()


def _tested(host: str, shell: Shell, test: FileTest) -> Iterator[Row]:
    done = shell.run(["test", test.flag, test.path], timeout=PATH_TIMEOUT)
    failed = Row("bad", host, test.path, test.bad, test.fix)
    yield failed if done.status else Row("ok", host, test.path, test.good)


# ---- prints the rows -------------------------------------------------------------------------------------------------


_printing = threading.Lock()
"""Held while something is printed: other threads tell the progress."""


def print_rows(rows: Iterable[Row]) -> None:
    """Print one line per row, and below it the fix, in place of the progress."""
    with _printing:
        _rewrite_line("")
        for row in rows:
            symbol, name_of_colour = {"ok": (DONE, "green"), "bad": (DEAD, "red"), "note": (WARN, "yellow")}[row.mark]
            mark = click.style(plain(symbol), fg=name_of_colour)
            name = f"{clean(row.subject):<12} "
            name += f"{shorten(clean(row.what), 40):<12} " if row.what else ""
            click.echo(f"{mark} {plain(name)}{plain(clean(row.text.removeprefix(f'{row.subject}: ')))}", color=colour())
            if row.fix:
                print_fix(row.fix)


def print_fix(fix: str) -> None:
    """Print a fix, below its row."""
    for number, line in enumerate(fix.splitlines()):
        click.echo(plain(f"    {' ' if number else '→'} {clean(line)}"), color=colour())


def print_progress(done: int, hosts: int) -> None:
    """One line on a terminal's standard error, rewritten as hosts are done."""
    with _printing:
        _rewrite_line(f"{done} of {hosts} hosts" if done < hosts else "")


def _rewrite_line(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{' ' * 40}\r{text}", err=True, nl=False)


def colour() -> bool | None:
    """For click: no colour with NO_COLOR, else as the terminal allows."""
    return False if os.environ.get("NO_COLOR") else None
