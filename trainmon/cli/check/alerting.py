"""Checks who sends notifications: the channels, the dead-man's switch, and the daemon of `[daemon] host`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from collectors.connections import local_hostname
from collectors.daemon.collector import DaemonCollector, DaemonConnection
from trainmon.alerting.notify.channels.healthchecks import Ping
from trainmon.alerting.notify.message import Broken, Sender, render
from trainmon.cli.check.output import Row, in_parallel
from trainmon.config import InvalidValue, Settings
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
from trainmon.model import Notice
from trainmon.runtime.alert_service import caveats, resolve_address
from trainmon.runtime.channels import senders, unfit
from trainmon.transport.shell import AskUser, Shell

TIMEOUT: Seconds = 20.0
"""For one channel; channels are checked in parallel."""

MORE: Seconds = 10.0
"""After this additional time a channel has not answered."""

FIX_SECRET = "fix the config, or provide the environment variable or the file that it names"
FIX_CHANNEL = "fix its [[notify]] in the config"

RECEIVED = "a service may accept a message and not deliver it: check that it arrived"


def check_channels(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The rows of each channel of the config. With `test`, a message is sent to each."""
    try:
        made = senders(settings.notify, state_directory=find_state_directory(os.environ).path)
    except ConfigError as error:
        yield from (Row("bad", "channel", "", problem, FIX_SECRET) for problem in error.problems)
        made = tuple(_usable(settings))
    late = f"no answer within {2 * TIMEOUT + MORE:g}s"
    checks = [
        (Row("bad", "channel", sender.health.name, late), partial(_channel, sender, test=test)) for sender in made
    ]
    for rows in in_parallel(checks, len(made), 2 * TIMEOUT + MORE):
        yield from rows
    yield from _dead_man_switch(settings, test=test)
    yield from (Row("note", "alerts", "", caveat) for caveat in caveats(settings))
    if test and made:
        yield Row("note", "alerts", "", RECEIVED)


def _usable(settings: Settings) -> Iterator[Sender]:
    """The channels without a mistake, when others have one."""
    for entry in settings.notify:
        with contextlib.suppress(ConfigError):  # already reported
            yield from senders((entry,), state_directory=find_state_directory(os.environ).path)


def _channel(sender: Sender, *, test: bool) -> Iterator[Row]:
    health = sender.health
    about = f"{health.type}, {health.target}" if health.target else health.type
    try:
        wrong = unfit(sender, TIMEOUT)
        if wrong:
            yield Row("bad", "channel", health.name, f"{about}: {wrong}", FIX_CHANNEL)
            return
        if test:
            answer = sender.send(render([test_notice(health.name, time.time())], time.time()), TIMEOUT).answer
            about += f": accepted the test{f' ({answer})' if answer else ''}"
        yield Row("ok", "channel", health.name, about)
    except TrainmonError as error:
        fix = FIX_CHANNEL if isinstance(error, Broken) else "try again; the failure may be temporary"
        yield Row("bad", "channel", health.name, f"{about}: {error.message}", fix)
    if note := sender.health.note:  # apprise's remark about the address
        yield Row("note", "channel", health.name, note)


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


def _dead_man_switch(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The dead-man's switch. The test goes to its log, so that it does not count as a ping."""
    if settings.heartbeat.ping is None:
        return
    text = "an address is set; check --notify tests it"
    try:
        ping = Ping("ping", resolve_address(settings.heartbeat.ping))
        if test:
            ping("log", "a test by trainmon-tui check --notify", TIMEOUT)
            text = "accepted the test"
        yield Row("ok", "heartbeat", "ping", text)
    except InvalidValue as wrong:
        yield Row("bad", "heartbeat", "ping", f'"ping" {wrong}', FIX_SECRET)
    except TrainmonError as error:
        yield Row("bad", "heartbeat", "ping", error.message, "fix [heartbeat] ping in the config")


START = "start the daemon there; trainmon-tui service systemd|cron|slurm|tmux prints how"
NO_DAEMON = "no daemon runs there; a dashboard sends the notifications while it runs"


def check_daemon(settings: Settings, ssh_config: Path | None, ask: AskUser | None) -> Iterator[Row]:
    """The rows of the daemon's host; none when the config names no host."""
    host = settings.daemon.host
    if host is None:
        return
    if host in (local_hostname(), "localhost"):
        yield Row(
            "note",
            "daemon",
            host,
            "is this machine: remove [daemon]; a dashboard finds the daemon of its own machine in the ledger",
        )
        return
    connection = DaemonConnection(host, lambda _: None, ask, ssh_config)
    with contextlib.closing(connection):
        yield from query(settings, host, connection.shell, SystemClock())


def check_textfile(settings: Settings) -> Iterator[Row]:
    """The row of the file for node_exporter, if a daemon on this machine writes one."""
    host, textfile = settings.daemon.host, settings.daemon.textfile
    if textfile is None or host not in (None, local_hostname(), "localhost"):
        return
    folder = Path(textfile).parent
    if not folder.is_dir():
        fix = f"create it, and start node_exporter with --collector.textfile.directory={folder}"
        yield Row("bad", "textfile", "", f"{folder} is not a directory", fix)
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Row("bad", "textfile", "", f"you cannot write to {folder}", "let the user of the daemon write there")
    else:
        yield Row("ok", "textfile", "", textfile)


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
    yield Row("ok", "daemon", host, f"pid {status.leader.pid} sends notifications to {channels}{checked}")
    if status.leader.problem:
        yield Row("note", "daemon", host, status.leader.problem)
    if not status.channels:
        yield Row("note", "daemon", host, "it has no notification channel", "add [[notify]] to the config there")
