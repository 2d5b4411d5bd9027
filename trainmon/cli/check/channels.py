"""The rows of who sends notifications: the channels, the dead-man's switch, and the daemon of `[daemon] host`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collectors.connections import local_hostname
from collectors.daemon.collector import DaemonCollector, DaemonConnection
from trainmon.alerting.notify.channels.healthchecks import Ping
from trainmon.alerting.notify.message import Broken, Sender, render
from trainmon.alerting.notify.plots.render import NO_PLOTS
from trainmon.cli.check.watch import Row, Watch, facts, in_parallel, reported
from trainmon.config import Settings
from trainmon.config.notify import AppriseSettings, NtfySettings
from trainmon.lib import (
    Clock,
    ConfigError,
    Instant,
    Seconds,
    SystemClock,
    TrainmonError,
    counted,
    duration,
    find_state_directory,
)
from trainmon.lib.extras import install_command
from trainmon.model import Notice
from trainmon.runtime.alert_service import CHECKED, caveats, ping_address, senders
from trainmon.transport.shell import Shell

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
        if isinstance(sender, CHECKED):
            sender.check(TIMEOUT)
        if test:
            answer = sender.send(render([test_notice(name, time.time())], time.time()), TIMEOUT).answer
            about += f": accepted the test{f' ({answer})' if answer else ''}"
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
    checked = "" if last is None else f", last check {duration(max(0.0, status.at - last))} ago"
    channels = counted(len(status.channels), "channel") if status.channels else "no channel"
    alone = "" if status.channels else "it has no notification channel"
    yield from facts(
        "daemon",
        ("ok", host, f"pid {status.leader.pid} sends notifications to {channels}{checked}", ""),
        ("note", host, status.leader.problem, ""),
        ("note", host, alone, "add [[notify]] to the config there"),
    )
