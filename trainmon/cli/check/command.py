"""trainmon-tui check: tests the config and all that it names, the hosts first. Each ✗ comes with a fix."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import msgspec

from collectors.connections import local_hostname
from collectors.daemon import DaemonCollector, DaemonConnection
from trainmon.alerting.notify.channels.healthchecks import Ping
from trainmon.alerting.notify.message import Broken, Sender, render
from trainmon.alerting.notify.plots.render import NO_PLOTS
from trainmon.cli.check.state import KEY_FILE, host_rows, metrics_rows, wandb_rows
from trainmon.cli.check.watch import Row, Watch, facts, in_parallel, reported
from trainmon.cli.terminal import ask_on_terminal, plain, prompting, show_progress
from trainmon.config import AlertmanagerSettings, MetricsSettings, Settings, load_settings
from trainmon.config.notify import AppriseSettings, NtfySettings
from trainmon.ledger.ledger import KEEP, NAME
from trainmon.ledger.postgresql import connection_error
from trainmon.lib import (
    Clock,
    ConfigError,
    Instant,
    Seconds,
    SystemClock,
    TrainmonError,
    ago,
    clean,
    counted,
    find_state_directory,
    shorten,
    size,
)
from trainmon.lib.extras import install_command
from trainmon.model import Notice
from trainmon.runtime.alert_service import CHECKED, caveats, ping_address, senders
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import copy_address
from trainmon.transport.shell import Shell
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


# ---- the channels, and the dead-man's switch -------------------------------------------------------------------------

TIMEOUT: Seconds = 20.0
"""For one channel; channels are checked in parallel."""

MORE: Seconds = 10.0
"""After this additional time a channel has not answered."""

FIX_SECRET = "fix the config, or provide the environment variable or the file that it names"


def channel_rows(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The rows of each channel of the config, and of the dead-man's switch. With `test`, a message is sent to each."""
    directory = find_state_directory(os.environ).path
    try:
        made = senders(settings.notify, state_directory=directory)
    except ConfigError as error:
        yield from (Row("bad", "channel", "", problem, FIX_SECRET) for problem in error.problems)
        made = ()
        for entry in settings.notify:
            with contextlib.suppress(ConfigError):  # already reported
                made += senders((entry,), state_directory=directory)
    late = f"no answer within {2 * TIMEOUT + MORE:g}s"
    checks = [(Row("bad", "channel", one.health.name, late), _sender_rows(one, test=test)) for one in made]
    for rows in in_parallel(checks, len(made), 2 * TIMEOUT + MORE):
        yield from rows
    if settings.heartbeat.ping is not None:
        yield from reported("heartbeat", "ping", _ping_rows(settings, test=test), "fix [heartbeat] ping in the config")
    has_plots = any(isinstance(one.own, NtfySettings | AppriseSettings) and one.own.pictures for one in settings.notify)
    if has_plots and (command := install_command("plots")):
        yield Row("note", "channel", "plots", f"{NO_PLOTS}: notifications have no plots", command)
    received = "a service may accept a message and not deliver it: check that it arrived" if test and made else ""
    yield from facts("alerts", *(("note", "", text, "") for text in (*caveats(settings), received)))


def _sender_rows(sender: Sender, *, test: bool) -> Iterator[Row]:
    name, about = sender.health.name, ", ".join(filter(None, (sender.health.type, sender.health.target)))
    try:
        if test:
            answer = sender.send(render([test_notice(name, time.time())], time.time()), TIMEOUT).answer
            yield Row("ok", "channel", name, f"{about}: accepted the test{f' ({answer})' if answer else ''}")
        if isinstance(sender, CHECKED):
            sender.check(TIMEOUT)
        if not test:
            yield Row("ok", "channel", name, about)
    except TrainmonError as error:
        usual = "fix its [[notify]] in the config"
        fix = error.hint or (usual if isinstance(error, Broken) else "try again; the failure may be temporary")
        yield Row("bad", "channel", name, f"{about}: {error.message}", fix)
    yield from facts("channel", ("note", name, sender.health.note, ""))  # apprise's remark about the address


def test_notice(channel: str, now: Instant) -> Notice:
    """What `check --notify` sends."""
    return Notice(
        key=f"check {now:.3f}",
        kind="test",
        reason="requested by check --notify",
        severity="info",
        at=now,
        channels=(channel,),
        title="a test of trainmon-tui",
        lines=(f"Somebody ran check --notify. If you read this, the channel {channel} works.",),
    )


def _ping_rows(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The dead-man's switch. The test goes to its log, so that it does not count as a ping."""
    try:
        address = ping_address(settings) or ""
    except ConfigError as error:
        yield Row("bad", "heartbeat", "ping", error.problems[0].removeprefix("[heartbeat]: "), FIX_SECRET)
        return
    text = "an address is set; check --notify tests it"
    if test:
        Ping("ping", address)("log", "a test by trainmon-tui check --notify", TIMEOUT)
        text = "accepted the test"
    yield Row("ok", "heartbeat", "ping", text)


# ---- the daemon of another machine -----------------------------------------------------------------------------------

START = "start the daemon there; trainmon-tui service systemd|cron|slurm|tmux prints how"
NO_DAEMON = "no daemon runs there; a dashboard sends the notifications while it runs"


def daemon_rows(watch: Watch) -> Iterator[Row]:
    """The rows of the daemon's host; none when the config names no host."""
    host = watch.settings.daemon.host
    if host in (local_hostname(), "localhost"):
        text = "is this machine: remove [daemon]; a dashboard finds the daemon of its own machine in the ledger"
        yield Row("note", "daemon", host, text)
    elif host is not None:
        with contextlib.closing(DaemonConnection(host, lambda _: None, watch.ask, watch.ssh_config)) as connection:
            yield from query(watch.settings, host, connection.shell, SystemClock())


def textfile_rows(settings: Settings) -> Iterator[Row]:
    """The row of the file for node_exporter, if a daemon on this machine writes one."""
    host, textfile = settings.daemon.host, settings.daemon.textfile
    if textfile is not None and host in (None, local_hostname(), "localhost"):
        folder, text, fix = Path(textfile).parent, textfile, ""
        if not folder.is_dir():
            text = f"{folder} is not a directory"
            fix = f"create it, and start node_exporter with --collector.textfile.directory={folder}"
        elif not os.access(folder, os.W_OK | os.X_OK):
            text, fix = f"you cannot write to {folder}", "let the user of the daemon write there"
        yield Row("bad" if fix else "ok", "textfile", "", text, fix)


def query(settings: Settings, host: str, connect: Callable[[], Shell], clock: Clock) -> Iterator[Row]:
    """The daemon's status, read as the dashboard reads it."""
    collector = DaemonCollector(
        host, settings.daemon.command, settings.daemon.every, connect, lambda _: None, clock,
        on_active=lambda _: None, on_silent=lambda _: None,
    )  # fmt: skip
    try:
        is_watched, status = collector.poll()
    except TrainmonError as error:
        fix = error.hint or f"try: ssh {host} {settings.daemon.command[0]} status"
        yield Row("bad", "daemon", host, error.message.removeprefix(f"{host}: "), fix)
        return
    finally:
        collector.stop()
    if not is_watched:
        yield Row("bad", "daemon", host, status.leader.problem or NO_DAEMON, START)
        return
    last = status.leader.last_tick_at
    checked = "" if last is None else f", last check {ago(status.at - last)} ago"
    channels = counted(len(status.channels), "channel") if status.channels else "no channel"
    alone = "" if status.channels else "it has no notification channel"
    yield from facts(
        "daemon",
        ("ok", host, f"pid {status.leader.pid} sends notifications to {channels}{checked}", ""),
        ("note", host, status.leader.problem, ""),
        ("note", host, alone, "add [[notify]] to the config there"),
    )
