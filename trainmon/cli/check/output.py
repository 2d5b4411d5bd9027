"""`trainmon-tui check`: the rows of its answer, and how they are shown."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from posixpath import dirname
from typing import Literal, NamedTuple

import click

from trainmon.cli.terminal import plain
from trainmon.config import Settings
from trainmon.lib import (
    ConfigError,
    Seconds,
    TrainmonError,
    clean,
    counted,
    duration,
    find_state_directory,
    shorten,
    size,
)
from trainmon.model import RunSpec
from trainmon.transport.shell import Shell
from trainmon.transport.ssh.config import FALLBACK_NOTE
from tui.style import DEAD, DONE, WARN

# ---- A row of the output of `check`, and the rows of the files of the config -----------------------------------------


class Row(NamedTuple):
    """What was checked, the result, and for ✗ how to fix it."""

    mark: Literal["ok", "bad", "note"]
    subject: str
    what: str
    text: str
    fix: str = ""


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
            yield FileTest(
                run.script,
                "-r",
                "readable",
                "missing or not readable",
                f"fix the `script` of run {run.name} in the config",
            )
        if run.checkpoints is not None:
            fix = "create it, or ask for r and x permission"
            yield FileTest(run.checkpoints, "-d", "a directory", "missing or not a directory", fix)
            yield FileTest(run.checkpoints, "-r", "can be listed", "cannot be listed (no r permission)", fix)
            yield FileTest(run.checkpoints, "-x", "can be entered", "cannot be entered (no x permission)", fix)
    folders = [dirname(path) or "/" for run in runs for path in (run.kill_switch, run.save_switch) if path is not None]
    for folder in dict.fromkeys(folders):
        fix = "create it, or ask for write permission: the actions save and kill need it"
        yield FileTest(folder, "-w", "switches can be created", "missing or not writable", fix)


def reported(host: str, what: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows. A failure ends them with a row of its own."""
    try:
        yield from rows
    except TrainmonError as error:
        yield Row("bad", host, what, error.message, error.hint)


def run_test(host: str, shell: Shell, test: FileTest) -> Row:
    """One path on one host."""
    try:
        done = shell.run(["test", test.flag, test.path], timeout=PATH_TIMEOUT)
    except TrainmonError as error:
        return Row("bad", host, test.path, error.message, error.hint)
    failed = Row("bad", host, test.path, test.bad, test.fix)
    return failed if done.status else Row("ok", host, test.path, test.good)


def check_files(host: str, shell: Shell, tests: Sequence[FileTest]) -> Iterator[Row]:
    """One row per path: the first check that fails, or the last one."""
    paths: dict[str, list[FileTest]] = {}
    for test in tests:
        paths.setdefault(test.path, []).append(test)
    for tests in paths.values():
        for test in tests:
            row = run_test(host, shell, test)
            if row.mark == "bad":
                break
        yield row


# ---- prints the rows of `check`, and says what the config holds ------------------------------------------------------


def copy_rows(settings: Settings) -> list[Row]:
    """Whether the ledger can be copied to PostgreSQL."""
    from trainmon.ledger.postgresql import connection_error
    from trainmon.runtime.evaluation import copy_address

    try:
        url = copy_address(settings)
    except ConfigError as error:
        return [Row("bad", "ledger", "copy_to", error.problems[0], error.hint)]
    if url is None:
        return []
    problem = connection_error(url)
    return [Row("ok" if problem is None else "bad", "ledger", "copy_to", problem or "PostgreSQL answers")]


def size_rows(settings: Settings, directory: Path) -> list[Row]:
    """The size of the ledger, if there is one, and how long it keeps its entries."""
    from trainmon.ledger.ledger import KEEP, NAME

    used = sum(file.stat().st_size for file in directory.glob(f"{NAME}*"))
    keep = KEEP if settings.ledger is None else settings.ledger.keep
    return [Row("ok", "ledger", "size", f"{size(used)}; entries are kept for {duration(keep)}")] if used else []


def config_rows(settings: Settings, file: Path | None) -> list[Row]:
    """The config in short, and its settings that this version does not use yet."""
    counts = f"{counted(len(settings.clusters), 'cluster')}, {counted(len(settings.runs), 'run')}"
    rows = [Row("ok", "config", "", f"{file or 'no file'}: {counts}")]
    kept = find_state_directory(os.environ)
    rows.append(Row("note" if kept.warning else "ok", "ledger", "", kept.warning or f"in {kept.path}"))
    rows += size_rows(settings, kept.path)
    rows += copy_rows(settings)
    if shutil.which("ssh") is None:
        rows.append(Row("note", "ssh", "", FALLBACK_NOTE, "install OpenSSH's client"))
    return rows


def print_rows(rows: Iterable[Row]) -> None:
    """Print one line per row, and below it the fix."""
    for row in rows:
        symbol, name_of_colour = {"ok": (DONE, "green"), "bad": (DEAD, "red"), "note": (WARN, "yellow")}[row.mark]
        mark = click.style(plain(symbol), fg=name_of_colour)
        name = f"{clean(row.subject):<12} {shorten(clean(row.what), 40):<12} " if row.what else f"{row.subject:<12} "
        click.echo(f"{mark} {plain(name)}{plain(clean(row.text.removeprefix(f'{row.subject}: ')))}", color=colour())
        if row.fix:
            print_fix(row.fix)


def print_fix(fix: str) -> None:
    """Print a fix, below its row."""
    for number, line in enumerate(fix.splitlines()):
        click.echo(plain(f"    {' ' if number else '→'} {clean(line)}"), color=colour())


def progress(done: int, hosts: Sequence[str]) -> None:
    """One line on a terminal's standard error, rewritten as hosts are done."""
    if sys.stderr.isatty():
        text = f"\r{done} of {len(hosts)} hosts" if done < len(hosts) else "\r" + " " * 40 + "\r"
        click.echo(text, err=True, nl=False)


def colour() -> bool | None:
    """For click: no colour with NO_COLOR, else as the terminal allows."""
    return False if os.environ.get("NO_COLOR") else None
