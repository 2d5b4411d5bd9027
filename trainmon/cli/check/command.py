"""trainmon-tui check: tests the config and everything that it names. Each ✗ comes with a fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmon.cli.options import config_option, hosts_argument, ssh_config_option

if TYPE_CHECKING:
    from trainmon.cli.check.rows import Row
    from trainmon.config import Settings


@click.command("check")
@hosts_argument
@config_option
@ssh_config_option
@click.option(
    "--headless",
    is_flag=True,
    help="Never prompt, and do not use the SSH agent of this login session: the daemon has neither.",
)
@click.option("--notify", is_flag=True, help="Send a test notification on every channel, and show the response.")
def command(hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, headless: bool, notify: bool) -> int:
    """Check the config, and test every host, Slurm, path, log, W&B run and channel that it names.

    Exit status: 0 no problem, 2 a usage or config error, 3 a problem with a host, Slurm, a path, a log,
    W&B or a channel.
    """
    from trainmon.cli.check.alerting import check_channels, check_daemon
    from trainmon.cli.check.hosts import check_hosts
    from trainmon.cli.check.rows import Row
    from trainmon.cli.check.wandb import check_wandb
    from trainmon.config import load_settings, run_specs
    from trainmon.lib import ConfigError, counted
    from trainmon.runtime.logfile import log_to_file

    log_to_file()
    try:
        settings, file = load_settings(config, hosts)
    except ConfigError as error:
        print_rows([Row("bad", "config", "", problem) for problem in error.problems])
        if error.hint:
            print_fix(error.hint)
        return 2
    print_rows(config_rows(settings, file))
    if headless and os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "the SSH agent of this login session was not used, because the daemon will not have it"
        fix = "give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"
        print_rows([Row("note", "agent", "", text, fix)])
    bad = 0
    is_person_there = not headless and sys.stdin.isatty()
    for rows in check_hosts(settings, is_person_there=is_person_there, progress=progress, ssh_config=ssh_config):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    daemon = [*check_daemon(settings, ssh_config, is_person_there=is_person_there)]
    for rows in ([*check_wandb(run_specs(settings))], [*check_channels(settings, test=notify)], daemon):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    total = f"{counted(bad, 'problem')} to fix" if bad else "no problems"
    click.echo(click.style(total, bold=True), color=_colour())
    return 3 if bad else 0


def config_rows(settings: Settings, file: Path | None) -> list[Row]:
    """The config in short, and its settings that this version does not use yet."""
    import shutil

    from trainmon.cli.check.rows import Row
    from trainmon.lib import counted, find_state_directory
    from trainmon.transport.ssh.config import FALLBACK_NOTE

    counts = f"{counted(len(settings.clusters), 'cluster')}, {counted(len(settings.runs), 'run')}"
    rows = [Row("ok", "config", "", f"{file or 'no file'}: {counts}")]
    unused = [f"[{table}]" for name, table in NOT_USED_YET.items() if getattr(settings, name)]
    families = [f"[[run]] #{number} model_family" for number, run in enumerate(settings.runs, 1) if run.model_family]
    rows += [Row("note", "config", where, "read, but not used by this version") for where in unused]
    if settings.ledger is not None and settings.ledger.copy_to is not None:
        rows.append(Row("note", "config", "[ledger]", "copy_to is read, but not used by this version"))
    rows += [Row("note", "config", where, "read, but not used by this version") for where in families]
    kept = find_state_directory(os.environ)
    rows.append(Row("note" if kept.warning else "ok", "ledger", "", kept.warning or f"in {kept.path}"))
    if shutil.which("ssh") is None:
        rows.append(Row("note", "ssh", "", FALLBACK_NOTE, "install OpenSSH's client"))
    return rows


NOT_USED_YET = {"retry": "retry", "evals": "eval"}
"""Tables of Settings that are only read and checked, with their names in the file."""


def print_rows(rows: Iterable[Row]) -> None:
    """Print one line per row, and below it the fix."""
    from trainmon.cli.terminal import plain
    from trainmon.lib import clean, shorten
    from tui.style import DEAD, DONE, WARN

    for row in rows:
        symbol, colour = {"ok": (DONE, "green"), "bad": (DEAD, "red"), "note": (WARN, "yellow")}[row.mark]
        mark = click.style(plain(symbol), fg=colour)
        name = f"{clean(row.subject):<12} {shorten(clean(row.what), 40):<12} " if row.what else f"{row.subject:<12} "
        click.echo(f"{mark} {plain(name)}{plain(clean(row.text.removeprefix(f'{row.subject}: ')))}", color=_colour())
        if row.fix:
            print_fix(row.fix)


def print_fix(fix: str) -> None:
    from trainmon.cli.terminal import plain
    from trainmon.lib import clean

    for number, line in enumerate(fix.splitlines()):
        click.echo(plain(f"    {' ' if number else '→'} {clean(line)}"), color=_colour())


def progress(done: int, hosts: Sequence[str]) -> None:
    """One line on a terminal's standard error, rewritten as hosts are done."""
    if sys.stderr.isatty():
        text = f"\r{done} of {len(hosts)} hosts" if done < len(hosts) else "\r" + " " * 40 + "\r"
        click.echo(text, err=True, nl=False)


def _colour() -> bool | None:
    return False if os.environ.get("NO_COLOR") else None
