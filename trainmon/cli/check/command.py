"""trainmon-tui check: tests the config and all that it names, the hosts first. Each ✗ comes with a fix."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from trainmon.cli.check.channels import channel_rows, daemon_rows, textfile_rows
from trainmon.cli.check.state import KEY_FILE, host_rows, metrics_rows, wandb_rows
from trainmon.cli.check.watch import Row, Watch, reported
from trainmon.cli.terminal import ask_on_terminal, plain, prompting, show_progress
from trainmon.config import AlertmanagerSettings, MetricsSettings, Settings, load_settings
from trainmon.ledger.ledger import KEEP, NAME
from trainmon.ledger.postgresql import connection_error
from trainmon.lib import ConfigError, ago, clean, counted, find_state_directory, shorten, size
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import copy_address
from trainmon.transport.ssh.config import FALLBACK_NOTE
from tui.keys import changed_keys
from tui.style import DEAD, DONE, WARN


def check_all(
    hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, headless: bool, notify: bool
) -> int:
    """Check the config and all that it names, and print the rows; the exit status."""

    log_to_file()
    try:
        settings, file = load_settings(config, hosts)
        changed_keys(settings.keys, str(file))
    except ConfigError as error:
        print_rows([Row("bad", "config", "", problem) for problem in error.problems])
        print_fix(error.hint)
        return 2
    bad = 0
    for rows in _everything(settings, file, ssh_config, headless=headless, notify=notify):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    total = f"{counted(bad, 'problem')} to fix" if bad else "no problems"
    click.echo(click.style(total, bold=True), color=colour())
    return 3 if bad else 0


def _everything(
    settings: Settings, file: Path | None, ssh_config: Path | None, *, headless: bool, notify: bool
) -> Iterator[list[Row]]:
    """The rows of the config, and then of all that it names, as soon as each part is known."""

    yield [*config_rows(settings, file), *permission_rows(settings, file)]
    if headless and os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "the SSH agent of this login session was not used, because the daemon will not have it"
        yield [Row("note", "agent", "", text, KEY_FILE)]
    ask = ask_on_terminal if not headless and sys.stdin.isatty() else None
    watch = Watch(settings, ask, ssh_config)
    with watch.monitor:
        yield from host_rows(watch)
        yield list(metrics_rows(watch))
        yield list(wandb_rows(watch))
    yield [*channel_rows(settings, test=notify)]
    yield [*daemon_rows(watch), *textfile_rows(settings)]


# ---- prints the rows -------------------------------------------------------------------------------------------------


def print_rows(rows: Iterable[Row]) -> None:
    """Print one line per row, and below it the fix, in place of the progress."""
    show_progress("")
    with prompting:
        for row in rows:
            symbol, name_of_colour = {"ok": (DONE, "green"), "bad": (DEAD, "red"), "note": (WARN, "yellow")}[row.mark]
            name = f"{clean(row.subject):<12} "
            name += f"{shorten(clean(row.what), 40):<12} " if row.what else ""
            text = plain(name + clean(row.text.removeprefix(f"{row.subject}: ")))
            click.echo(f"{click.style(plain(symbol), fg=name_of_colour)} {text}", color=colour())
            print_fix(row.fix)


def print_fix(fix: str) -> None:
    """Print a fix, below its row."""
    for number, line in enumerate(fix.splitlines()):
        click.echo(plain(f"    {' ' if number else '→'} {clean(line)}"), color=colour())


def colour() -> bool | None:
    """For click: no colour with NO_COLOR, else as the terminal allows."""
    return False if os.environ.get("NO_COLOR") else None


# ---- who else can read the secrets of the config ---------------------------------------------------------------------

SECRETS = frozenset({"topic", "reply_topic", "token", "reply_token", "password", "url", "headers", "ping", "copy_to"})
"""The settings of [[notify]], [heartbeat], [ledger] and `metrics` that are secrets."""


def permission_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """A note for each file with secrets that other users can read."""
    secrets = [*_secrets(settings)]
    named = [Path(text.removeprefix("file:")).expanduser() for text in secrets if text.startswith("file:")]
    files = dict.fromkeys(named, ("secret", stat.S_IRWXG | stat.S_IRWXO, "it is a secret"))
    if file is not None and any(not text.startswith(("env:", "file:")) for text in secrets):
        files = {file: ("config", stat.S_IRGRP | stat.S_IROTH, "it contains secrets")} | files
    for path, (what, refused, why) in files.items():
        with contextlib.suppress(OSError):  # another row says that it cannot be read
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & refused:
                text = f"other users can read {path} (mode {mode:o}), and {why}"
                yield Row("note", what, "", text, f"chmod go-rwx {shlex.quote(str(path))}")


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


# ---- what the config holds -------------------------------------------------------------------------------------------


def copy_rows(settings: Settings) -> Iterator[Row]:
    """Whether the ledger can be copied to PostgreSQL.

    Raises:
        ConfigError: when its address is missing or not valid, or psycopg is not installed.
    """
    url = copy_address(settings)
    if url is not None:
        problem = connection_error(url)
        yield Row("ok" if problem is None else "bad", "ledger", "copy_to", problem or "PostgreSQL answers")


def size_rows(settings: Settings, directory: Path) -> list[Row]:
    """The size of the ledger, if there is one, and how long it keeps its entries."""

    used = sum(file.stat().st_size for file in directory.glob(f"{NAME}*"))
    keep = KEEP if settings.ledger is None else settings.ledger.keep
    return [Row("ok", "ledger", "size", f"{size(used)}; entries are kept for {ago(keep)}")] if used else []


def config_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """The config in short, and where and how long the ledger is kept."""
    counts = f"{counted(len(settings.clusters), 'cluster')}, {counted(len(settings.runs), 'run')}"
    yield Row("ok", "config", "", f"{file or 'no file'}: {counts}")
    kept = find_state_directory(os.environ)
    yield Row("note" if kept.warning else "ok", "ledger", "", kept.warning or f"in {kept.path}")
    yield from size_rows(settings, kept.path)
    yield from reported("ledger", "copy_to", copy_rows(settings))
    if shutil.which("ssh") is None:
        yield Row("note", "ssh", "", FALLBACK_NOTE, "install OpenSSH's client")
