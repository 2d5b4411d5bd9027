"""`trainmon-tui check`: its rows, how they are collected and printed, and those about the config and its files."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shlex
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from posixpath import dirname
from typing import Literal, NamedTuple

import click
import msgspec

from trainmon.cli.terminal import plain
from trainmon.config import AlertmanagerSettings, MetricsSettings, Settings
from trainmon.ledger.ledger import KEEP, NAME
from trainmon.ledger.postgresql import connection_error
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
from trainmon.runtime.evaluation import copy_address
from trainmon.transport.shell import Shell
from trainmon.transport.ssh.config import FALLBACK_NOTE
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
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, list[Row]]] = queue.SimpleQueue()

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number = waiting.get_nowait()
                done.put((number, _ended(*checks[number])))

    for number in range(len(checks)):
        waiting.put(number)
    for number in range(min(at_once, len(checks))):
        threading.Thread(target=work, name=f"check {number}", daemon=True).start()
    ready: dict[int, list[Row]] = {}
    for number, (late, _) in enumerate(checks):
        try:
            while number not in ready:
                ended, rows = done.get(timeout=timeout)
                ready[ended] = rows
                progress(len(ready), len(checks))
        except queue.Empty:
            timeout = 0.0  # what hangs is waited for once
        yield ready.get(number, [late])


def _ended(late: Row, check: Callable[[], Iterable[Row]]) -> list[Row]:
    rows: list[Row] = []
    try:
        rows += check()
    except Exception as error:  # a bug is one row: the other checks go on
        log.exception("checking %s failed", late.subject)
        why = f"{type(error).__name__}: {error}"
        rows.append(late._replace(text=why, fix="this is a bug in trainmon-tui; see its log"))
    return rows


def reported(host: str, what: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows. A failure ends them with a row of its own."""
    try:
        yield from rows
    except TrainmonError as error:
        yield Row("bad", host, what, error.message, error.hint)


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


def run_test(host: str, shell: Shell, test: FileTest) -> Row:
    """One path on one host."""
    try:
        done = shell.run(["test", test.flag, test.path], timeout=PATH_TIMEOUT)
    except TrainmonError as error:
        return Row("bad", host, test.path, error.message, error.hint)
    failed = Row("bad", host, test.path, test.bad, test.fix)
    return failed if done.status else Row("ok", host, test.path, test.good)


def check_files(host: str, shell: Shell, tests: Iterable[FileTest]) -> Iterator[Row]:
    """One row per path: the first test that fails, or the last one."""
    rows: dict[str, Row] = {}
    for test in tests:
        if test.path not in rows or rows[test.path].mark != "bad":
            rows[test.path] = run_test(host, shell, test)
    yield from rows.values()


# ---- who else can read the secrets of the config ---------------------------------------------------------------------

SECRETS = frozenset({"topic", "reply_topic", "token", "reply_token", "password", "url", "headers", "ping", "copy_to"})
"""The settings of [[notify]], [heartbeat], [ledger] and `metrics` that are secrets."""


def permission_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """A note for each file with secrets that other users can read."""
    secrets = [*_secrets(settings)]
    if file is not None and any(not text.startswith(("env:", "file:")) for text in secrets):
        yield from _row("config", file, stat.S_IRGRP | stat.S_IROTH, "it contains secrets")
    named = (text.removeprefix("file:") for text in secrets if text.startswith("file:"))
    for name in dict.fromkeys(named):
        yield from _row("secret", Path(name).expanduser(), stat.S_IRWXG | stat.S_IRWXO, "it is a secret")


def _secrets(value: object, name: str = "") -> Iterator[str]:
    """The secrets of a setting and of all below it, as they are written."""
    match value:
        case AlertmanagerSettings(url=url) | MetricsSettings(url=url) if "@" not in url:  # the address is no secret
            yield from _secrets(msgspec.structs.asdict(value) | {"url": None})
        case msgspec.Struct():
            yield from _secrets(msgspec.structs.asdict(value))
        case dict():
            for key, inner in value.items():
                yield from _secrets(inner, name or key)
        case tuple():
            for inner in value:
                yield from _secrets(inner)
        case str() if name in SECRETS:
            yield value


def _row(what: str, file: Path, refused: int, why: str) -> Iterator[Row]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return  # another row says that it cannot be read
    if mode & refused:
        text = f"other users can read {file} (mode {mode:o}), and {why}"
        yield Row("note", what, "", text, f"chmod go-rwx {shlex.quote(str(file))}")


# ---- prints the rows of `check`, and says what the config holds ------------------------------------------------------


def copy_rows(settings: Settings) -> list[Row]:
    """Whether the ledger can be copied to PostgreSQL."""

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


def progress(done: int, hosts: int) -> None:
    """One line on a terminal's standard error, rewritten as hosts are done."""
    if sys.stderr.isatty():
        text = f"\r{done} of {hosts} hosts" if done < hosts else "\r" + " " * 40 + "\r"
        click.echo(text, err=True, nl=False)


def colour() -> bool | None:
    """For click: no colour with NO_COLOR, else as the terminal allows."""
    return False if os.environ.get("NO_COLOR") else None
