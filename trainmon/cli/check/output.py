"""Prints the rows of `check`, and says what the config holds."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from trainmon.cli.check.rows import Row
from trainmon.cli.terminal import plain
from trainmon.config import Settings
from trainmon.lib import ConfigError, clean, counted, duration, find_state_directory, shorten, size
from trainmon.transport.ssh.config import FALLBACK_NOTE
from tui.style import DEAD, DONE, WARN


def copy_rows(settings: Settings) -> list[Row]:
    """Whether the ledger can be copied to PostgreSQL."""
    from trainmon.ledger.postgresql import connection_error
    from trainmon.runtime.alert_service import copy_address

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
