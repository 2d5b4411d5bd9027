"""trainmon-tui check: tests the config and everything that it names. Each ✗ comes with a fix."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from trainmon.cli.check.hosts import check_hosts
from trainmon.cli.check.output import Row, colour, print_fix, print_rows, progress, reported
from trainmon.cli.check.services import check_channels, check_daemon, check_metrics, check_textfile, check_wandb
from trainmon.cli.terminal import ask_on_terminal
from trainmon.config import AlertmanagerSettings, MetricsSettings, Settings, load_settings, run_specs
from trainmon.ledger.ledger import KEEP, NAME
from trainmon.ledger.postgresql import connection_error
from trainmon.lib import ConfigError, counted, duration, find_state_directory, size
from trainmon.runtime.evaluation import copy_address
from trainmon.runtime.logs import log_to_file
from trainmon.transport.ssh.config import FALLBACK_NOTE


def check_all(
    hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, headless: bool, notify: bool
) -> int:
    """Check the config and all that it names, and print the rows; the exit status."""

    log_to_file()
    try:
        settings, file = load_settings(config, hosts)
    except ConfigError as error:
        print_rows([Row("bad", "config", "", problem) for problem in error.problems])
        if error.hint:
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
        fix = "give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"
        yield [Row("note", "agent", "", text, fix)]
    ask = ask_on_terminal if not headless and sys.stdin.isatty() else None
    nodes = yield from check_hosts(settings, ask=ask, progress=progress, ssh_config=ssh_config)
    yield list(check_metrics(settings, nodes))
    yield list(check_wandb(run_specs(settings)))
    yield list(check_channels(settings, test=notify))
    yield [*check_daemon(settings, ssh_config, ask), *check_textfile(settings)]


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
    return [Row("ok", "ledger", "size", f"{size(used)}; entries are kept for {duration(keep)}")] if used else []


def config_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """The config in short, and its settings that this version does not use yet."""
    counts = f"{counted(len(settings.clusters), 'cluster')}, {counted(len(settings.runs), 'run')}"
    yield Row("ok", "config", "", f"{file or 'no file'}: {counts}")
    kept = find_state_directory(os.environ)
    yield Row("note" if kept.warning else "ok", "ledger", "", kept.warning or f"in {kept.path}")
    yield from size_rows(settings, kept.path)
    yield from reported("ledger", "copy_to", copy_rows(settings))
    if shutil.which("ssh") is None:
        yield Row("note", "ssh", "", FALLBACK_NOTE, "install OpenSSH's client")
