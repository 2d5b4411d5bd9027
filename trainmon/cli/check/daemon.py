"""Checks `[daemon] host`: whether it is reachable, trainmon-tui is installed and a daemon runs there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from collectors.connections import local_hostname
from collectors.daemon.collector import DaemonCollector
from collectors.daemon.connection import DaemonConnection
from trainmon.cli.check.row import Row
from trainmon.cli.terminal import ask_on_terminal
from trainmon.config import Settings
from trainmon.lib import Clock, SystemClock, TrainmonError, counted, duration
from trainmon.transport.shell import Shell

START = "start it there; trainmon-tui service systemd|cron|slurm|tmux shows how"
NO_DAEMON = "that machine sends no notifications: this dashboard sends them while it runs"


def check_daemon(settings: Settings, ssh_config: Path | None, *, is_person_there: bool) -> Iterator[Row]:
    """The rows of the daemon's host; none when the config names no host."""
    host = settings.daemon.host
    if host is None:
        return
    if host in (local_hostname(), "localhost"):
        yield Row("note", "daemon", host, "is this machine: the ledger finds a daemon here; [daemon] is not needed")
        return
    connection = DaemonConnection(host, lambda _: None, ask_on_terminal if is_person_there else None, ssh_config)
    with contextlib.closing(connection):
        yield from query(settings, host, connection.shell, SystemClock())


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
        yield Row("bad", "daemon", host, status.duty.words or NO_DAEMON, START)
        return
    last = status.duty.last_tick_at
    checked = "" if last is None else f", last check {duration(max(0.0, status.at - last))} ago"
    channels = counted(len(status.channels), "channel") if status.channels else "no channel"
    yield Row("ok", "daemon", host, f"pid {status.duty.pid} sends notifications to {channels}{checked}")
    if status.duty.words:
        yield Row("note", "daemon", host, status.duty.words)
    if not status.channels:
        yield Row("note", "daemon", host, "it has no notification channel", "add [[notify]] to the config there")
